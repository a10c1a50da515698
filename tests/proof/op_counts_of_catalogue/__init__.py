"""Proof that every case of the catalogue counts the same op counts in two fresh workers; see `__main__`."""
