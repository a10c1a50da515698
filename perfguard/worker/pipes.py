"""The two pipes to the parent."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from perfguard.records.protocol import CONTROL_VARIABLE, Message, encode, receive


class Control:
    """Receives commands and sends replies."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        # Benchmarks may start processes of their own; those must not hold the pipes open.
        for descriptor in (read_fd, write_fd):
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - os takes no keyword here
        self._reader = os.fdopen(read_fd, "rb")
        self._write_fd = write_fd

    def receive(self) -> Message | None:
        """The next command; None when the parent has gone."""
        return receive(self._reader)

    def send(self, reply: str, **fields: Any) -> None:
        """Answer with one line; a single write, so that it is never half there."""
        os.write(self._write_fd, encode({"reply": reply, **fields}))


def control_of_parent(process: str) -> Control:
    """The pipes that the environment names; without them, the process ends.

    Ctrl-C is ignored: the parent decides what to do about it. It lets the sample end, then says exit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = os.environ.pop(CONTROL_VARIABLE, None)
    if control is None:
        sys.exit(f"{process}: started by perfguard only ({CONTROL_VARIABLE} is not set)")
    read_fd, write_fd = map(int, control.split(","))
    return Control(read_fd, write_fd)
