"""The networks that training steps train. Imported by `benchmarks.steps` and `benchmarks.ops` in a worker."""
