"""Lines that differ between the trees of two arms, as one of the arms has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedStatement:
    """A statement that a change touches, or the line before which one was deleted."""

    path: str  # Of the file in the tree
    first: int  # Line, from 1
    last: int  # Line; of a compound statement the end of its head
    text: str  # What stands in the changed lines, or stood in the deleted ones


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLines:
    """What a change touches of an arm's Python files, statement by statement, in the order of paths and lines."""

    statements: tuple[ChangedStatement, ...] = ()

    def place_of(self, source: str) -> str | None:
        """A line, given as `train.py:88` from any folder that its file may be imported from, from the tree's.

        None where it is none of them.
        """
        path, _, line = source.rpartition(":")
        for each in self.statements if line.isdigit() else ():
            if each.first <= int(line) <= each.last and f"/{each.path}".endswith(f"/{path}"):
                return f"{each.path}:{line}"
        return None

    def only_line(self, words: Iterable[str] = ()) -> str | None:
        """The line of the one statement that has one of the words, or else of the one that was changed at all.

        None where there are several: then nothing says which of them acts on the step from outside it.
        """
        words = tuple(words)
        telling = [each for each in self.statements if any(word in each.text for word in words)]
        for found in (telling, self.statements):
            if len(found) == 1:
                return f"{found[0].path}:{found[0].first}"
        return None

    def by_path(self) -> Mapping[str, list[list[int]]]:
        """First and last line of each statement, by file."""
        found: dict[str, list[list[int]]] = {}
        for each in self.statements:
            found.setdefault(each.path, []).append([each.first, each.last])
        return found


NO_LINES = ChangedLines()
