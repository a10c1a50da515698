"""Benchmarks of whole training steps. Named by import string; only a worker imports them."""
