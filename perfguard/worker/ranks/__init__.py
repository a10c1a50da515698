"""Cases that run in several processes at once: the worker's side, and that of each process."""
