"""Ctrl-C: the first one ends the run in an orderly way, the second one at once."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType


class Interrupts:
    """While entered, SIGINT and SIGTERM set a flag instead of raising; a second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # whatever signal.signal returned

    @property
    def asked(self) -> bool:
        """Whether the user wants the run to end."""
        return self._asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        sys.stderr.write("\nperfguard: ending after this case; what was measured is kept. Again to abort.\n")
        sys.stderr.flush()
