"""Frozen values that flow through the pipeline; standard library only, no I/O."""
