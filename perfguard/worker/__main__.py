"""Entry of the child: forks pyperf workers that measure on command.

Started as `python start.py perfguard.worker` with a socket in the environment. Each request brings the command line of
a pyperf worker: `--worker -l 1 -w W -n N --affinity CPUS -o FILE`. pyperf runs the warm-ups and values, collects its
metadata and writes its own file; perfguard decides when each sample may run.
"""

from __future__ import annotations

from perfguard.worker.fork_server import main

if __name__ == "__main__":
    main()
