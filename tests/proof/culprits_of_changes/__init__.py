"""Proof that slow Python and data code is named by its line; see `__main__`."""
