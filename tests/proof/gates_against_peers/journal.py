"""Results as they come, one JSON object a line: an interruption loses nothing, a later call goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.proof.gates_against_peers.places import without_places

Row = dict[str, Any]
Item = TypeVar("Item")


class Journal:
    """A file of rows, each with a `key`; a key that stands there is done."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> tuple[Row, ...]:
        """Every complete row; a line that was cut off while it was written is left out."""
        if not self.path.is_file():
            return ()
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return tuple(found)

    def done(self, *, retry_errors: bool = False) -> frozenset[str]:
        """Keys of the rows; with `retry_errors` only of those whose last row came to an answer."""
        last = {row["key"]: row for row in self.rows()}
        return frozenset(key for key, row in last.items() if not (retry_errors and row.get("answer") == "error"))

    def append(self, row: Row) -> None:
        """Write a row, without paths of this machine, and have it on the disk before going on."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut_off = self.path.is_file() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if cut_off else "") + without_places(json.dumps(row, sort_keys=True)) + "\n")
            file.flush()
            os.fsync(file.fileno())


def within(items: Iterable[Item], *, minutes: float | None) -> Iterator[Item]:
    """The items, as long as there is time to begin another one; None is forever."""
    until = None if minutes is None else time.monotonic() + 60 * minutes
    for item in items:
        if until is not None and time.monotonic() >= until:
            return
        yield item
