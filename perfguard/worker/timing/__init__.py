"""Timed samples and the signals beside them. Entered by the rest of `worker`."""
