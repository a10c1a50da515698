"""Benchmarks written for other tools, run as they are: asv suites, pytest's `benchmark` fixture, torch's `Timer`."""
