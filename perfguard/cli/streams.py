"""What the standard streams are, and how much is said on them."""

from __future__ import annotations

from enum import Enum
from typing import TextIO


class Verbosity(str, Enum):
    """How much a command says beside its result."""

    QUIET = "quiet"
    """Nothing."""
    NORMAL = "normal"
    """What changes the verdict, and now and then how far it is."""
    VERBOSE = "verbose"
    """Every step and every note."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end; nobody is at the end of a stream that was closed before the start."""
    return stream is not None and not stream.closed and stream.isatty()
