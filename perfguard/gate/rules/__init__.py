"""The decision rules: evidence in, verdicts out, no I/O. Entered by the rest of `gate`."""
