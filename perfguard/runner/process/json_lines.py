"""Lines of JSON that a process writes, as they come."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from typing import IO, Any

from perfguard.errors import StoreError

_POLL_S = 0.25


def json_lines(out: IO[bytes]) -> Iterator[dict[str, Any] | None]:
    """Each line until the pipe is closed; None four times a second while there is none.

    Raises:
        StoreError: A line is no JSON.
    """
    buffer = b""
    while True:
        if not select.select([out], [], [], _POLL_S)[0]:
            yield None
            continue
        content = out.read1(65536)  # type: ignore[attr-defined]
        if not content:
            return
        *lines, buffer = (buffer + content).split(b"\n")
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError as error:
                raise StoreError(f"a process of perfguard wrote {line[:80]!r}, which is no result") from error
