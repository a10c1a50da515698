"""Ops that are called more or less often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, how_often, listed, phases_of, where
from perfguard.profile.changes.count_rules.movements import copies_at, open_copies, open_reorders, reorders_at
from perfguard.profile.changes.count_rules.op_names import callees, computes, leading, short
from perfguard.profile.changes.count_rules.residue import Counts, Place, Residue, RowKey
from perfguard.records.steps.ops import CensusKind, StepPhase

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


def calls(residue: Residue) -> list[Fact]:
    """`conv2d called twice as often (1 → 2) in forward of Net.conv1`: one fact for all modules with the same ops.

    Backward, reorders and copies that grow with them belong to them.
    """
    found: dict[tuple[StepPhase, bool, tuple[str, ...]], list[_Unit]] = defaultdict(list)
    for (_, more), changed in _changed(residue).items():
        unit = _unit(residue, changed)
        found[unit.first.phase, more, unit.ops].append(unit)
    return [_fact(units) for units in found.values()]


def _changed(residue: Residue) -> Mapping[tuple[Place, bool], Mapping[Place, Sequence[str]]]:
    """The changed ops of each place, by module, phases that follow from one another together, and by more and fewer."""
    found: dict[tuple[Place, bool], dict[Place, list[str]]] = defaultdict(dict)
    for place in sorted({row.place for row in residue.open(CensusKind.OP)}):
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
    there = {short(row.name): row.name for row in residue.at(place) if row.kind is CensusKind.OP}
    found = {}
    for op, change in changes.items():
        below = [there[callee] for callee in callees(op) if callee in there]
        if change and computes(op) and (not below or any(changes.get(callee) for callee in below)):
            found[op] = change
    return found


def _unit(residue: Residue, changed: Mapping[Place, Sequence[str]]) -> _Unit:
    first = next(place for phase in StepPhase for place in changed if place.phase is phase)
    ops = leading(changed[first])
    counts = residue.counts(row for row in residue.at(first) if row.kind is CensusKind.OP and row.name in ops)
    rows: set[RowKey] = set()
    for place, names in changed.items():
        rows |= residue.take(row for row in residue.open_at(place) if row.kind is CensusKind.OP and row.name in names)
        if _in_proportion(reorders_at(residue, place), counts):
            rows |= residue.take(open_reorders(residue, place))
        if _in_proportion(copies_at(residue, place), counts):
            rows |= residue.take(open_copies(residue, place))
    return _Unit(ops=tuple(ops), counts=counts, first=first, rows=frozenset(rows))


def _in_proportion(moved: Counts, called: Counts) -> bool:
    """Whether each call moves as much as before."""
    return moved.before * called.after == moved.after * called.before


def _fact(units: Sequence[_Unit]) -> Fact:
    counts = sum((unit.counts for unit in units), Counts())
    rows = frozenset[RowKey]().union(*(unit.rows for unit in units))
    places = frozenset(unit.first for unit in units)
    names = listed(short(op) for op in units[0].ops)
    backward = (
        StepPhase.BACKWARD in phases_of(row.place for row in rows) and units[0].first.phase is not StepPhase.BACKWARD
    )
    return Fact(
        rule=Rule.CALLS,
        before=counts.before,
        after=counts.after,
        sentence=(
            f"{names} {how_often(counts, kinds=len(units[0].ops))} {where(places)}"
            + (", and in its backward" if backward else "")
        ),
        places=places,
        rows=rows,
        gravity=gravity_of(counts.change),
    )
