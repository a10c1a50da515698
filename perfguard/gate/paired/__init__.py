"""The paired gate: two arms in interleaved blocks, confirmation, verdict. Entered by the rest of `gate`."""
