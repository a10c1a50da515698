"""Heterogeneous SGD: asynchronous workers of different speed train one shared model (Hogbatch, Adaptive Hogbatch).

`coordinator` hands out examples, `policies` decide how many, `simulator` drives both by a clock of its own; these are
pure. Source: Ma and Rusu, "Heterogeneous CPU+GPU Stochastic Gradient Descent Algorithms", arXiv:2004.08771.
"""
