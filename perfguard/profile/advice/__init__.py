"""Advice from one profile: what a step does and probably need not.

Pure; one rule a module, listed in `registry`.
"""
