"""Lines that differ between the trees of two arms, as one of the arms has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct


class ChangedStatement(Struct, frozen=True, kw_only=True):
    """A statement that a change touches, or the line before which one was deleted."""

    path: str  # Of the file in the tree
    first: int  # Line, from 1
    last: int  # Line; of a compound statement the end of its head
    text: str  # What stands in the changed lines of either side


class ChangedLines(Struct, frozen=True, kw_only=True):
    """What a change touches of an arm's Python files, statement by statement, in the order of paths and lines."""

    statements: tuple[ChangedStatement, ...] = ()
    is_complete: bool = False  # Whether nothing else changed that a step could depend on

    def place_of(self, source: str) -> str | None:
        """A line, given as `train.py:88` from any folder that its file may be imported from, from the tree's.

        None where it is none of them.
        """
        path, _, line = source.rpartition(":")
        inside = [each.path for each in self.statements if line.isdigit() and each.first <= int(line) <= each.last]
        known = [path] if path in inside else [each for each in inside if each.endswith(f"/{path}")]
        return f"{known[0]}:{line}" if known else None

    def line_with(self, words: Iterable[str] = ()) -> str | None:
        """The line of the first statement that has one of the words, or else of the one that was changed at all.

        None where such statements are in several files, or several changed and none has a word: then nothing says which
        change acts on the step from outside it.
        """
        words = tuple(words)
        telling = [each for each in self.statements if any(word in each.text for word in words)]
        if len({each.path for each in telling}) == 1:
            return f"{telling[0].path}:{telling[0].first}"
        if self.is_complete and len(self.statements) == 1:
            return f"{self.statements[0].path}:{self.statements[0].first}"
        return None

    def by_path(self) -> Mapping[str, list[list[int]]]:
        """First and last line of each statement, by file."""
        found: dict[str, list[list[int]]] = {}
        for path, first, last in dict.fromkeys((each.path, each.first, each.last) for each in self.statements):
            found.setdefault(path, []).append([first, last])
        return found


NO_LINES = ChangedLines()
