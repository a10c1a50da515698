"""Statistics of paired and stored samples: arrays in, estimates out. Pure; knows nothing of benchmarks."""
