"""Seconds of each op in a typical step. Pure; entered by the rest of `profile`."""
