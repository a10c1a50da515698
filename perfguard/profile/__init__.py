"""What a step executes, from the traces and logs of profiled steps: read, place, count, compare, explain."""
