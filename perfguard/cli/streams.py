"""What the standard streams are."""

from __future__ import annotations

from typing import TextIO


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end; nobody is at the end of a stream that was closed before the start."""
    return stream is not None and not stream.closed and stream.isatty()
