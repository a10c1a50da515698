"""The messages that the parent and a worker exchange: one JSON object a line, over two pipes.

The parent writes commands, the worker answers with replies; both sides read this file. A worker does exactly what it
is told, one command at a time, so whoever holds the last command holds the **baton**: only that arm runs.

```
hello(job)          -> ready(facts, missing_signals)      torch is imported here
prepare(case)       -> prepared(digest, checks, …) | failed   set-up of one case, not timed
bench(case, loops)  -> waiting                            a pyperf benchmark is open, its next slice waits
go                  -> slice(value_s, …), then waiting | benched | failed
attest              -> attested(modules)
exit                -> (end of file)
```
Plain dictionaries on purpose: the worker runs in environments that hold nothing but this package and pyperf.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

PROTOCOL_VERSION = 1
CONTROL_VARIABLE = "PERFGUARD_CONTROL"
"""Environment variable with `READ_FD,WRITE_FD` of the worker's two pipes."""

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A longer line is rubbish, not a message."""

Message = dict[str, Any]


class LineReader(Protocol):
    """The part of a binary file that `receive` needs."""

    def readline(self, size: int = ..., /) -> bytes:
        """One line with its newline, or b"" at the end."""
        ...


def encode(message: Message) -> bytes:
    """One line, compact and ASCII, ending in a newline."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line.

    Raises:
        ValueError: The line is not a JSON object; the message shows its beginning.
    """
    try:
        message = json.loads(line)
    except ValueError:
        raise ValueError(f"not a message: {line[:120]!r}") from None
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {line[:120]!r}")  # noqa: TRY004 - it is the content that is wrong
    return message


def receive(reader: LineReader) -> Message | None:
    """The next message, or None at the end of the stream.

    Raises:
        ValueError: A line is not a message.
    """
    line = reader.readline(MAX_LINE_BYTES)
    return decode(line) if line else None
