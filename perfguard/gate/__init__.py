"""Judges a candidate against a baseline.

Front ends, `report` and `integrations` may enter; each top-level module is one command's work.
"""
