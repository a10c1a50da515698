"""Arrays in, estimates out; knows nothing of benchmarks."""
