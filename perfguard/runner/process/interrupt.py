"""Ctrl-C: the first one ends the run in an orderly way, the second one at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_STDERR = 2


class Interrupts:
    """Whether the user wants the run to end. A second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = False

    @property
    def asked(self) -> bool:
        """Whether the user wants the run to end."""
        return self._asked

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT or SIGTERM."""
        del number, frame
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        # Not through sys.stderr: the signal may have come in the middle of a line that is being written there.
        with suppress(OSError):
            os.write(_STDERR, b"\nperfguard: ending after this case; what was measured is kept. Again to abort.\n")


@contextmanager
def catch_interrupts() -> Iterator[Interrupts]:
    """While entered, SIGINT and SIGTERM set a flag instead of ending the program."""
    interrupts = Interrupts()
    previous = {number: signal.signal(number, interrupts.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
