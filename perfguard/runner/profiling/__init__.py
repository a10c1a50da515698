"""Profiled steps of cases and scripts, replayed ops, and benchdnn. Entered by `profile.runs`."""
