"""The built-in benchmarks and the catalog of their cases.

The parent imports `catalog`, `selection` and `api` only; the rest needs torch.
"""
