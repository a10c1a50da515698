"""The paired gate: two arms in interleaved blocks, confirmation, verdict; two arms of a script. Entered by `gate`."""
