"""Exact counts of what a steady step executes. Pure; entered by the rest of `profile`."""
