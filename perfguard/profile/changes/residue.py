"""Where two op counts differ, and how much of it no rule has explained yet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfguard.profile.libraries.implementations import class_of
from perfguard.records.steps.ops import OpCountKind, OpCountRow, OpCounts, StepPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

ALIGNMENT_BYTES = 64
"""What torch and oneDNN align memory to. Counts of allocations must agree exactly; their bytes may differ by less than
this for each allocation, which is a buffer rounded up in another version, and more than that is a change."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Where in a step."""

    phase: StepPhase
    """Part of the step."""
    module: str
    """Pattern of the module's path; empty outside modules."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RowKey:
    """What a row counts."""

    kind: OpCountKind
    """As in the row, like the other fields."""
    place: Place
    """Phase and module."""
    name: str
    """Name."""
    detail: str
    """Detail."""
    implementation: str
    """Spelt alike on both sides where only the spelling differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often something happens in a step of either side."""

    before: int = 0
    """Of the baseline."""
    after: int = 0
    """Of the candidate."""

    @property
    def change(self) -> int:
        """How much more often in the candidate."""
        return self.after - self.before

    def __add__(self, other: Counts) -> Counts:
        return Counts(before=self.before + other.before, after=self.after + other.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Calls that became other calls."""

    lost: RowKey
    """What the baseline did more often."""
    gained: RowKey
    """What the candidate did instead."""
    calls: int
    """How many."""


class Residue:
    """The differing rows of two op counts, from which rules take what they explain.

    A row is *open* while a part of its difference is unexplained. Counts of rows never change; what is open shrinks.
    """

    def __init__(self, before: OpCounts, after: OpCounts) -> None:
        spelling = _spellings(before, after)
        tallies = [_tally(counts.rows, spelling) for counts in (before, after)]
        rows = sorted(tallies[0].keys() | tallies[1].keys())
        none = OpCountRow(
            kind=OpCountKind.OP, phase=StepPhase.LOAD, module="", name="", detail="", implementation="", count=0
        )
        self._counts: dict[RowKey, Counts] = {}
        self._sizes: dict[RowKey, Counts] = {}
        self._at: dict[Place, list[RowKey]] = defaultdict(list)
        self._open: dict[RowKey, int] = {}
        for row in rows:
            was, now = (tally.get(row, none) for tally in tallies)
            self._counts[row] = Counts(before=was.count, after=now.count)
            self._sizes[row] = Counts(before=was.size_bytes, after=now.size_bytes)
            self._at[row.place].append(row)
            if was.count != now.count or _sizes_differ(was, now):
                self._open[row] = now.count - was.count
        self.differing = frozenset(self._open)
        """All rows that differ, whatever has been explained."""

    def all(self, kind: OpCountKind, name: str) -> list[RowKey]:
        """All rows of a name, equal ones too."""
        return [row for row in self._counts if row.kind is kind and row.name == name]

    def open(self, kind: OpCountKind) -> list[RowKey]:
        """Open rows of a kind, sorted."""
        return [row for row in self._open if row.kind is kind]

    def change(self, row: RowKey) -> int:
        """The unexplained part of a row's difference; 0 for a row that is not open."""
        return self._open.get(row, 0)

    def at(self, place: Place) -> Collection[RowKey]:
        """All rows of a place, equal ones too."""
        return self._at.get(place, ())

    def open_at(self, place: Place) -> list[RowKey]:
        """Open rows of a place, sorted."""
        return [row for row in self.at(place) if row in self._open]

    def counts(self, rows: Iterable[RowKey]) -> Counts:
        """Both sides' counts of these rows together."""
        return sum((self._counts[row] for row in rows), Counts())

    def sizes(self, rows: Iterable[RowKey]) -> Counts:
        """Both sides' bytes of these rows together."""
        return sum((self._sizes[row] for row in rows), Counts())

    def take(self, rows: Iterable[RowKey]) -> frozenset[RowKey]:
        """Explain these rows entirely; gives those that were open."""
        return frozenset(row for row in rows if self._open.pop(row, None) is not None)

    def op_changes(self, place: Place) -> Mapping[str, int]:
        """The unexplained changes of the ops of a place, by name; 0 for one whose calls only look otherwise."""
        changes: dict[str, int] = defaultdict(int)
        for row in self.at(place):
            if row.kind is OpCountKind.OP and row in self._open:
                changes[row.name] += self._open[row]
        return changes

    def pair(self, rows: Iterable[RowKey], by: Callable[[RowKey], Hashable]) -> list[Pair]:
        """Explain open rows by one another: fewer calls of one are more calls of another.

        Args:
            rows: Open ones.
            by: Rows that may be paired have the same value. What is left of a group is more calls, or fewer.
        """
        groups: dict[Hashable, list[RowKey]] = defaultdict(list)
        for row in rows:
            groups[by(row)].append(row)
        return [pair for group in groups.values() for pair in self._pair_group(group)]

    def _pair_group(self, rows: Iterable[RowKey]) -> Iterable[Pair]:
        ordered = sorted(rows)
        lost = [row for row in reversed(ordered) if self.change(row) < 0]
        gained = [row for row in reversed(ordered) if self.change(row) > 0]
        while lost and gained:
            calls = min(-self.change(lost[-1]), self.change(gained[-1]))
            yield Pair(lost=lost[-1], gained=gained[-1], calls=calls)
            for queue, explained in ((lost, calls), (gained, -calls)):
                self._open[queue[-1]] += explained
                if self._open[queue[-1]] == 0:
                    del self._open[queue.pop()]


def _spellings(*op_counts: OpCounts) -> Mapping[str, str]:
    """One spelling for each choice of oneDNN: the first in the alphabet, whichever op counts has it."""
    spelling: dict[str, str] = {}
    for name in sorted({row.implementation for counts in op_counts for row in counts.rows}):
        spelling.setdefault(class_of(name), name)
    return spelling


def _tally(rows: Iterable[OpCountRow], spelling: Mapping[str, str]) -> dict[RowKey, OpCountRow]:
    tally: dict[RowKey, OpCountRow] = {}
    for row in rows:
        key = RowKey(
            kind=row.kind,
            place=Place(phase=row.phase, module=row.module),
            name=row.name,
            detail=row.detail,
            implementation=spelling[class_of(row.implementation)],
        )
        counted = tally.get(key, replace(row, count=0, size_bytes=0))
        tally[key] = replace(row, count=row.count + counted.count, size_bytes=row.size_bytes + counted.size_bytes)
    return tally


def _sizes_differ(was: OpCountRow, now: OpCountRow) -> bool:
    """Whether the bytes differ by more than alignment explains."""
    return abs(now.size_bytes - was.size_bytes) >= ALIGNMENT_BYTES * max(1, was.count, now.count)
