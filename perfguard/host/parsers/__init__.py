"""Readers of /proc, /sys and cpuid text: one subject a module, no knowledge of the running machine.

Only `host` enters; tests feed recorded machines.
"""
