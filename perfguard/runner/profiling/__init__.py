"""Profiled steps of cases and scripts, two arms of a script in turns, replayed ops, and benchdnn.

Entered by `profile.runs` and `gate.paired`.
"""
