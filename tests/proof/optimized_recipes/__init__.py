"""Proof: the optimized recipes of training steps, toggle by toggle, against the reference recipes."""
