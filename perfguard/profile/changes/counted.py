"""Where two op counts differ, what of it no rule has explained yet, and changes with the rows that they explain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from enum import Enum
from itertools import takewhile
from typing import Any, TypeVar

from msgspec import Struct

from perfguard.profile.libraries.implementations import class_of
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.steps.ops import OpCountChange, OpCountKind, OpCounts, StepPhase

ALIGNMENT_BYTES = 64
"""What torch and oneDNN align memory to. Counts of allocations must agree exactly; their bytes may differ by less than
this for each allocation, which is a buffer rounded up in another version, and more than that is a change."""

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
_Sortable = TypeVar("_Sortable", bound=Any)


class ChangeRule(str, Enum):
    """Kinds of change, worst first."""

    IMPLEMENTATION = "implementation"
    REORDERS = "reorders"
    COPIES = "copies"
    FUSION = "fusion"
    CACHE_MISSES = "cache-misses"
    DTYPE = "dtype"
    LAYOUT = "layout"
    SHAPES = "shapes"
    CALLS = "calls"
    ALLOCATIONS = "allocations"
    COMPILE = "compile"


class Place(Struct, frozen=True, kw_only=True, order=True):
    """Part of a step, and pattern of the module's path; empty outside modules."""

    phase: StepPhase
    module: str


class RowKey(Struct, frozen=True, kw_only=True, order=True):
    """What a row counts: an `OpCountRow` without its counts."""

    kind: OpCountKind
    place: Place
    name: str
    detail: str
    implementation: str  # One spelling on both sides where only the spelling differs


class StepCounts(Struct, frozen=True, kw_only=True):
    """How often something happens in a step of the baseline and of the candidate."""

    before: int = 0
    after: int = 0

    @property
    def change(self) -> int:
        """How much more often in the candidate."""
        return self.after - self.before

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(before=self.before + other.before, after=self.after + other.after)


class Pair(Struct, frozen=True, kw_only=True):
    """Calls of the baseline (`lost`) that became other calls of the candidate (`gained`)."""

    lost: RowKey
    gained: RowKey
    calls: int


class Residue:
    """The differing rows of two op counts, from which rules take what they explain.

    A row is *open* while a part of its difference is unexplained. Counts of rows never change; what is open shrinks.
    """

    def __init__(self, before: OpCounts, after: OpCounts) -> None:
        # Of each choice of oneDNN the spelling that comes first in the alphabet, whichever side has it.
        names = sorted({row.implementation for row in (*before.rows, *after.rows)}, reverse=True)
        spelling = {class_of(name): name for name in names}
        counts: dict[RowKey, StepCounts] = defaultdict(StepCounts)
        self._sizes: dict[RowKey, StepCounts] = defaultdict(StepCounts)
        for side, op_counts in (("before", before), ("after", after)):
            for row in op_counts.rows:
                key = RowKey(
                    kind=row.kind,
                    place=Place(phase=row.phase, module=row.module),
                    name=row.name,
                    detail=row.detail,
                    implementation=spelling[class_of(row.implementation)],
                )
                counts[key] += StepCounts(**{side: row.count})
                self._sizes[key] += StepCounts(**{side: row.size_bytes})
        self._counts = {key: counts[key] for key in sorted(counts)}
        self._at = grouped(self._counts, lambda row: row.place)
        self._open = {row: found.change for row, found in self._counts.items() if found.change or self._is_resized(row)}
        self.differing = frozenset(self._open)
        """All rows that differ, whatever has been explained."""

    def _is_resized(self, row: RowKey) -> bool:
        """Whether the bytes differ by more than alignment explains."""
        counts = self._counts[row]
        return abs(self._sizes[row].change) >= ALIGNMENT_BYTES * max(1, counts.before, counts.after)

    def all(self, kind: OpCountKind, name: str) -> list[RowKey]:
        """All rows of a name, equal ones too."""
        return [row for row in self._counts if row.kind is kind and row.name == name]

    def open(self, kind: OpCountKind) -> list[RowKey]:
        """Open rows of a kind, sorted."""
        return [row for row in self._open if row.kind is kind]

    def change(self, row: RowKey) -> int:
        """The unexplained part of an open row's difference."""
        return self._open[row]

    def at(self, place: Place, kind: OpCountKind | None = None) -> list[RowKey]:
        """All rows of a place, or those of a kind, equal ones too."""
        return [row for row in self._at.get(place, ()) if kind is None or row.kind is kind]

    def open_at(self, place: Place) -> list[RowKey]:
        """Open rows of a place, sorted."""
        return [row for row in self.at(place) if row in self._open]

    def counts(self, rows: Iterable[RowKey]) -> StepCounts:
        """Both sides' counts of these rows together."""
        return sum((self._counts[row] for row in rows), StepCounts())

    def sizes(self, rows: Iterable[RowKey]) -> StepCounts:
        """Both sides' bytes of these rows together."""
        return sum((self._sizes[row] for row in rows), StepCounts())

    def take(self, rows: Iterable[RowKey]) -> frozenset[RowKey]:
        """Explain these rows entirely; gives those that were open."""
        return frozenset(row for row in rows if self._open.pop(row, None) is not None)

    def op_changes(self, place: Place) -> Mapping[str, int]:
        """The unexplained changes of the ops of a place, by name; 0 for an op whose details alone changed."""
        changes: dict[str, int] = defaultdict(int)
        for row in self.at(place, OpCountKind.OP):
            if row in self._open:
                changes[row.name] += self._open[row]
        return changes

    def pair(self, rows: Iterable[RowKey], by: Callable[[RowKey], Hashable]) -> list[Pair]:
        """Explain open rows of one group by one another: fewer calls of one are more calls of another."""
        pairs = []
        for group in grouped(sorted(rows, reverse=True), by).values():
            lost = [row for row in group if self.change(row) < 0]
            gained = [row for row in group if self.change(row) > 0]
            while lost and gained:
                calls = min(-self.change(lost[-1]), self.change(gained[-1]))
                pairs.append(Pair(lost=lost[-1], gained=gained[-1], calls=calls))
                for queue, explained in ((lost, calls), (gained, -calls)):
                    self._open[queue[-1]] += explained
                    if self._open[queue[-1]] == 0:
                        del self._open[queue.pop()]
        return pairs


class Change(Struct, frozen=True, kw_only=True):
    """One change, and the differing rows that it explains, or a part of; also at other places, where effects show."""

    record: OpCountChange
    rows: frozenset[RowKey]


def changed(
    rule: ChangeRule,
    code: str,
    rows: frozenset[RowKey],
    counts: StepCounts,
    values: Mapping[str, Value],
    *,
    places: Collection[Place] = (),
    severity: Severity | None = None,
) -> Change:
    """A change with its fact, at the places of its rows unless others are given."""
    places = set(places) or {row.place for row in rows}
    modules, phases = {place.module for place in places}, phases_of(places)
    path = common_module(modules)
    found = change_fact(
        code,
        {"before": counts.before, "after": counts.after, **values},
        module=path,
        phases=phases,
        places=len(modules),
        severity=severity or severity_of(counts.change),
    )
    record = OpCountChange(
        fact=found,
        phase=phases[0],  # causes come before effects
        module=path if len(modules) == 1 or "." in path else "",  # not where it is spread over all of the model
        rule=rule.value,
        before=counts.before,
        after=counts.after,
    )
    return Change(record=record, rows=rows)


def change_fact(
    code: str,
    values: Mapping[str, Value],
    *,
    module: str,
    phases: Iterable[StepPhase],
    places: int,
    line: str | None = None,
    severity: Severity = Severity.NOTABLE,
) -> Fact:
    """A fact about what a step executes in a number of modules (`places`); `module` is what these have in common."""
    names = tuple(phase.value for phase in phases)
    return fact(code, values, severity=severity, op=module or None, place=line, phases=names, places=places)


def severity_of(change: int) -> Severity:
    """Of a count that is better smaller: less work is no harm."""
    return Severity.INFO if change < 0 else Severity.NOTABLE


def call_code(before: float, after: float) -> str:
    """Code of ops that are called more or less often."""
    if not before or not after:
        return "ops.removed" if before else "ops.added"
    return "calls.added" if after > before else "calls.removed"


def phases_of(places: Iterable[Place]) -> tuple[StepPhase, ...]:
    """Phases in the order of a step."""
    found = {place.phase for place in places}
    return tuple(phase for phase in StepPhase if phase in found)


def common_module(modules: Iterable[str]) -> str:
    """`ResNet.layer3` for all that is below it; empty where nothing is shared."""
    levels = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))


def grouped(items: Iterable[_Item], by: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Items by a key, in the order in which the keys first occur."""
    groups: dict[_Key, list[_Item]] = defaultdict(list)
    for item in items:
        groups[by(item)].append(item)
    return dict(groups)


def calls_by(pairs: Iterable[Pair], what: Callable[[Pair], _Key]) -> Counter[_Key]:
    """Calls of pairs by what they have in common."""
    calls: Counter[_Key] = Counter()
    for pair in pairs:
        calls[what(pair)] += pair.calls
    return calls


def ranked(calls: Mapping[_Sortable, int]) -> list[_Sortable]:
    """What is called most often first; of equals in the order of the alphabet."""
    return sorted(calls, key=lambda name: (-calls[name], name))
