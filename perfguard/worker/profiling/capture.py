"""File descriptor 1 into a file: what C libraries print never passes through `sys.stdout`."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STDOUT = 1


@contextmanager
def captured_output(path: Path) -> Iterator[None]:
    """Send what is printed to file descriptor 1 to a file, by this process and by those that it starts meanwhile.

    May be nested: the innermost file takes it. Whatever happens, the descriptor leads to its old place afterwards.

    Args:
        path: Is created, or emptied.

    Raises:
        OSError: The file cannot be written, or descriptor 1 is closed.
    """
    saved = os.dup(_STDOUT)
    try:
        with path.open("wb", buffering=0) as target:
            _flush()
            try:
                os.dup2(target.fileno(), _STDOUT)
                yield
            finally:
                _flush()
                os.dup2(saved, _STDOUT)
    finally:
        os.close(saved)


def _flush() -> None:
    """Write out what Python and C still hold, so that it ends up on the side where it was printed."""
    for stream in (sys.stdout, sys.__stdout__):
        # A script may have closed or replaced them.
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
