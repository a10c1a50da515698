"""Entry of the child: a pyperf worker that measures when it is told to.

Started as `python -m perfguard.worker --worker -l 1 -w W -n N --affinity CPUS -o FILE` with the control pipes in the
environment. pyperf runs the warm-ups and values, collects its metadata and writes its own file; perfguard decides
when each sample may run.
"""

from __future__ import annotations

import os
import signal
import sys

from perfguard.records.protocol import CONTROL_VARIABLE
from perfguard.worker.serve import Control, Worker
from perfguard.worker.timing.signals import Meters


def main() -> None:
    """Serve commands until `exit` or the end of the stream."""
    # The parent decides about Ctrl-C: it lets the sample end, then says exit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = os.environ.pop(CONTROL_VARIABLE, None)
    if control is None:
        sys.exit(f"perfguard worker: started by perfguard only ({CONTROL_VARIABLE} is not set)")
    read_fd, write_fd = (int(fd) for fd in control.split(","))
    Worker(Control(read_fd, write_fd), Meters()).serve()


if __name__ == "__main__":
    main()
