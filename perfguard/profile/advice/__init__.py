"""Advice from one profile: what a step does and probably need not.

Pure. Rules of one subject share a module; `advise` lists them all. `runs` and the gate may enter.
"""
