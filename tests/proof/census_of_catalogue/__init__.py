"""Proof that every case of the catalogue counts the same census in two fresh workers; see `__main__`."""
