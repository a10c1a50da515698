"""Files in git: baselines, op counts, calibrations, plans, the allow-list.

`gate` and everything above it may enter.
"""
