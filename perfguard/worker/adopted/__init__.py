"""Suites of other tools, run unchanged. Entered by the rest of `worker`."""
