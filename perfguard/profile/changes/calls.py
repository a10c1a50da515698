"""Ops that are called more or less often or from elsewhere, and whatever no other rule explains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfguard.profile.changes.counted import Change, Rule, call_code, changed, explained, phases_of, severity_of
from perfguard.profile.changes.movements import copies_at, is_reorder, open_copies, open_reorders, reorders_at
from perfguard.profile.changes.op_names import callees, computes, leading, short
from perfguard.profile.changes.pairs import account_of
from perfguard.profile.changes.residue import Counts, Place, Residue, RowKey
from perfguard.profile.op_counts.steady import UNPLACED
from perfguard.records.facts import Severity
from perfguard.records.steps.ops import OpCountKind, StepPhase

_OF_MODULES = frozenset({StepPhase.FORWARD, StepPhase.LOSS, StepPhase.BACKWARD})
"""Phases in which a module's backward follows from its forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """What one module calls more often, or less often."""

    ops: tuple[str, ...]
    """Names of the leading ops in the earliest phase."""
    counts: Counts
    """Of these ops."""
    first: Place
    """The earliest phase."""
    rows: frozenset[RowKey]
    """All that it explains, backward included."""


def moves(residue: Residue) -> list[Change]:
    """The same calls in other modules, one change: a part of the model was renamed, or code went elsewhere.

    Ops that compute show where something went; views, copies and primitives go along between the same places. Phases
    are kept: the same op in another phase is other work, such as a forward that is repeated in backward.
    """
    ops = [row for row in residue.open(OpCountKind.OP) if computes(row.name)]
    pairs = residue.pair(ops, lambda row: (row.place.phase, _what(row)))
    if not pairs:
        return []
    links = {(min(both), max(both)) for pair in pairs for both in [(pair.lost.place, pair.gained.place)]}
    along = [pair for link in sorted(links) for pair in residue.pair(_movable(residue, link), _what)]
    account = account_of([*pairs, *along])
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        calls[pair.lost.place.module, pair.gained.place.module] += pair.calls
    (source, target), *others = sorted(calls, key=lambda modules: (-calls[modules], modules))
    return [
        changed(
            Rule.CALLS,
            "ops.moved",
            Counts(before=account.calls, after=account.calls),
            account.places,
            account.rows | _take_allocations(residue, account.places),
            values=account.values,
            severity=Severity.INFO,
            source=source or "no module",
            target=target or "no module",
            others=len(others) or None,
        )
    ]


def _what(row: RowKey) -> Hashable:
    return row.kind, row.name, row.detail, row.implementation


def _movable(residue: Residue, link: tuple[Place, Place]) -> Sequence[RowKey]:
    rows = [row for place in link for row in residue.open_at(place)]
    return [row for row in rows if row.kind in {OpCountKind.OP, OpCountKind.PRIMITIVE}]


def _take_allocations(residue: Residue, places: Iterable[Place]) -> frozenset[RowKey]:
    """Allocations of these places, if they are the same together: then they only went along."""
    rows = [row for place in places for row in residue.open_at(place) if row.kind is OpCountKind.ALLOCATION]
    if residue.counts(rows).change or residue.sizes(rows).change:
        return frozenset()
    return residue.take(rows)


def calls(residue: Residue) -> list[Change]:
    """Ops that are called more or less often: one change for all modules with the same ops.

    Backward, reorders and copies that grow with them belong to them.
    """
    found: dict[tuple[StepPhase, bool, tuple[str, ...]], list[_Unit]] = defaultdict(list)
    for (_, more), names in _changed_ops(residue).items():
        unit = _unit(residue, names)
        found[unit.first.phase, more, unit.ops].append(unit)
    return [_calls_of(units) for units in found.values()]


def _changed_ops(residue: Residue) -> Mapping[tuple[Place, bool], Mapping[Place, Sequence[str]]]:
    """The changed ops of each place, by module, phases that follow from one another together, and by more and fewer."""
    found: dict[tuple[Place, bool], dict[Place, list[str]]] = defaultdict(dict)
    for place in sorted({row.place for row in residue.open(OpCountKind.OP)}):
        group = Place(phase=StepPhase.FORWARD, module=place.module) if place.phase in _OF_MODULES else place
        for op, change in _changes_at(residue, place).items():
            found[group, change > 0].setdefault(place, []).append(op)
    return found


def _changes_at(residue: Residue, place: Place) -> Mapping[str, int]:
    """How much more often, or less, ops compute something.

    Autocast calls an op again once it has cast its tensors: where calls of a wrapper changed, but none of those below
    it, the same is computed.
    """
    changes = residue.op_changes(place)
    there = {short(row.name): row.name for row in residue.at(place) if row.kind is OpCountKind.OP}
    found = {}
    for op, change in changes.items():
        below = [there[callee] for callee in callees(op) if callee in there]
        if change and computes(op) and (not below or any(changes.get(callee) for callee in below)):
            found[op] = change
    return found


def _unit(residue: Residue, names: Mapping[Place, Sequence[str]]) -> _Unit:
    first = next(place for phase in StepPhase for place in names if place.phase is phase)
    ops = leading(names[first])
    counts = residue.counts(row for row in residue.at(first) if row.kind is OpCountKind.OP and row.name in ops)
    rows: set[RowKey] = set()
    for place, there in names.items():
        rows |= residue.take(row for row in residue.open_at(place) if row.kind is OpCountKind.OP and row.name in there)
        if _in_proportion(reorders_at(residue, place), counts):
            rows |= residue.take(open_reorders(residue, place))
        if _in_proportion(copies_at(residue, place), counts):
            rows |= residue.take(open_copies(residue, place))
    return _Unit(ops=tuple(ops), counts=counts, first=first, rows=frozenset(rows))


def _in_proportion(moved: Counts, called: Counts) -> bool:
    """Whether each call moves as much as before."""
    return moved.before * called.after == moved.after * called.before


def _calls_of(units: Sequence[_Unit]) -> Change:
    counts = sum((unit.counts for unit in units), Counts())
    rows = frozenset[RowKey]().union(*(unit.rows for unit in units))
    first = units[0].first.phase
    return changed(
        Rule.CALLS,
        call_code(counts.before, counts.after),
        counts,
        {unit.first for unit in units},
        rows,
        severity=severity_of(counts.change),
        ops=tuple(map(short, units[0].ops)),
        with_backward=first is not StepPhase.BACKWARD and StepPhase.BACKWARD in phases_of(row.place for row in rows),
    )


def attach(residue: Residue, changes: Sequence[Change]) -> list[Change]:
    """The changes, with what is left at their places: views come with ops, primitives are executed by them.

    Calls of libraries that could not be placed can be any op's: they go to the last of the changes of ops.
    """
    of_calls: dict[Place, int] = {}
    of_ops = [number for number, one in enumerate(changes) if any(row.kind is OpCountKind.OP for row in one.rows)]
    for number, change in enumerate(changes):
        for row in change.rows:
            if row.kind in {OpCountKind.OP, OpCountKind.PRIMITIVE}:
                of_calls.setdefault(row.place, number)
    left: dict[int, list[RowKey]] = defaultdict(list)
    for kind in (OpCountKind.OP, OpCountKind.PRIMITIVE):
        for row in residue.open(kind):
            if row.place.module == UNPLACED and of_ops:
                left[of_ops[-1]].append(row)
            elif row.place in of_calls:
                left[of_calls[row.place]].append(row)
    return [replace(one, rows=one.rows | residue.take(left[number])) for number, one in enumerate(changes)]


def minor_calls(residue: Residue) -> list[Change]:
    """Views and new tensors that come with nothing else: one change for each phase, more and fewer."""
    found: dict[tuple[StepPhase, bool], list[RowKey]] = defaultdict(list)
    for row in residue.open(OpCountKind.OP):
        found[row.place.phase, residue.change(row) > 0].append(row)
    return [_left(residue, rows, leading(row.name for row in rows)) for rows in found.values()]


def executions(residue: Residue) -> list[Change]:
    """Primitives that run more or less often for the same ops: a change for each primitive, more and fewer."""
    found: dict[tuple[str, bool], list[RowKey]] = defaultdict(list)
    for row in residue.open(OpCountKind.PRIMITIVE):
        if not is_reorder(row):
            found[row.name, residue.change(row) > 0].append(row)
    return [_left(residue, rows, [name]) for (name, _), rows in found.items()]


def _left(residue: Residue, rows: Sequence[RowKey], names: Sequence[str]) -> Change:
    places = {row.place for row in rows}
    unexplained = [row for row in rows if row.name in names]
    counts = residue.counts(
        row for place in places for row in residue.at(place) if row.kind is rows[0].kind and row.name in names
    )
    # Where other changes took a part of these calls, only what is left can be said.
    if counts.change != sum(map(residue.change, unexplained)):
        counts = residue.counts(unexplained)
    code, ops = call_code(counts.before, counts.after), tuple(map(short, names))
    return explained(residue, Rule.CALLS, code, rows, counts=counts, ops=ops)
