"""Benchmarks of single operations. Named by import string; only a worker imports them."""
