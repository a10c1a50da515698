"""Profiled steps, scripts and their settings from outside, replayed ops and ceilings of the machine.

Entered by the rest of `worker`.
"""
