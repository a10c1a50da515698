"""Reads recorded runs and writes their pages. Entered by `cli` and `integrations.github`."""
