"""The machine: its fingerprint, which CPUs to measure on, and the lock that keeps other runs away.

`runner` and everything above it may enter.
"""
