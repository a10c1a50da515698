"""Reads profiler traces and assigns every event to op, module, phase and line.

Pure; entered by the rest of `profile`.
"""
