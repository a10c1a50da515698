"""Entry of the child: a pyperf worker that measures on command.

Started as `python -m perfguard.worker --worker -l 1 -w W -n N --affinity CPUS -o FILE` with the control pipes in the
environment. pyperf runs the warm-ups and values, collects its metadata and writes its own file; perfguard decides
when each sample may run.
"""

from __future__ import annotations

from perfguard.worker.pipes import control_of_parent
from perfguard.worker.serve import WorkerState
from perfguard.worker.timing.signals import Meters

if __name__ == "__main__":
    WorkerState(control_of_parent("perfguard worker"), Meters()).serve()
