"""Profiled runs: from workers and their files to profiles. Entered by `gate` and `perfguard profile`."""
