"""What changed between two profiles or op counts, and what it costs. Pure; entered by `gate` and `profile.runs`."""
