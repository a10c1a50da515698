"""Measures what `perfguard tui` costs while it watches: CPU at 1 Hz, memory after hours."""
