"""Profiled steps, scripts, replayed ops and ceilings of the machine. Entered by the rest of `worker`."""
