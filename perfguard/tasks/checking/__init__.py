"""Checks a tree of results against the run rules.

What was measured, how, and whether the figures follow from the logs.
"""
