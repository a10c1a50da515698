"""The child process, a pyperf worker: the only package that times anything. Imported by nobody, started with -m."""
