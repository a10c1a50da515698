"""Explains times: what a step executes, what changed, what to do about it.

`gate` and everything above it may enter.
"""
