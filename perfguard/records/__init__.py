"""Frozen data that the rooms exchange: cases, runs, events, verdicts.

Every room may import it; it imports the standard library and `errors` alone.
"""
