"""Timed blocks: schedule, calibration, the measuring loop, and what disturbed it.

Entered through `runner.measuring`.
"""
