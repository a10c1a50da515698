"""Data that is moved and not computed with: reorders of oneDNN and copies of torch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import more_or_fewer
from perfguard.profile.changes.count_rules.op_names import COPIES, is_copy, short
from perfguard.profile.changes.count_rules.pairs import REORDER
from perfguard.profile.changes.count_rules.residue import Counts, Place, Residue, RowKey
from perfguard.records.steps.ops import CensusKind, StepPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def is_reorder(row: RowKey) -> bool:
    """Whether a row counts reorders."""
    return row.kind is CensusKind.PRIMITIVE and row.name == REORDER


def is_copying(row: RowKey) -> bool:
    """Whether a row counts calls of an op that copies, a wrapper included."""
    return row.kind is CensusKind.OP and is_copy(row.name)


def open_reorders(residue: Residue, place: Place) -> list[RowKey]:
    """Reorders of a place that are not explained."""
    return [row for row in residue.open_at(place) if is_reorder(row)]


def open_copies(residue: Residue, place: Place) -> list[RowKey]:
    """Copies of a place that are not explained."""
    return [row for row in residue.open_at(place) if is_copying(row)]


def reorders_at(residue: Residue, place: Place) -> Counts:
    """All reorders of a place."""
    return residue.counts(row for row in residue.at(place) if is_reorder(row))


def copies_at(residue: Residue, place: Place) -> Counts:
    """All copies of a place, as calls of the innermost op whose number changed.

    `contiguous` calls `clone` calls `copy_`, and that is one copy.
    """
    changes = {short(op): change for op, change in residue.op_changes(place).items() if is_copy(op)}
    changed = [op for op in reversed(COPIES) if changes.get(op)]
    counted = changed[0] if changed else COPIES[-1]
    return residue.counts(row for row in residue.at(place) if is_copying(row) and short(row.name) == counted)


def changed_places(
    residue: Residue, rows: Iterable[RowKey], counts_at: Callable[[Residue, Place], Counts]
) -> list[Sequence[Place]]:
    """The places of rows in groups: one for each phase, those with more and those with fewer apart.

    Args:
        residue: Where the rows are from.
        rows: Open ones.
        counts_at: What is counted at a place; a place with as many as before is in no group.
    """
    found: dict[tuple[StepPhase, bool], list[Place]] = defaultdict(list)
    for place in sorted({row.place for row in rows}):
        change = counts_at(residue, place).change
        if change:
            found[place.phase, change > 0].append(place)
    return [*found.values()]


def outermost(rows: Iterable[RowKey]) -> str:
    """Of copying ops, the one that is nearest to the code that asks for a copy: `contiguous`."""
    names = {short(row.name) for row in rows if is_copying(row)}
    return next((op for op in COPIES if op in names), COPIES[-1])


def around(places: Iterable[Place]) -> frozenset[Place]:
    """Where the tensors of these places may have been prepared.

    The places, the modules around them, and the load phase, in which the batch gets its dtype and memory format.
    """
    found = {Place(phase=StepPhase.LOAD, module="")}
    for place in places:
        parts = place.module.split(".") if place.module else []
        found |= {Place(phase=place.phase, module=".".join(parts[:length])) for length in range(len(parts) + 1)}
    return frozenset(found)


def take_movements(residue: Residue, places: Iterable[Place]) -> tuple[str, frozenset[RowKey]]:
    """Explain the reorders and copies of these places by what else happened there.

    Returns:
        `12 reorders more, 3 copies more`, empty where their numbers are as before; and the rows.
    """
    reorders = copies = 0
    rows: frozenset[RowKey] = frozenset()
    for place in places:
        moved, copied = open_reorders(residue, place), open_copies(residue, place)
        reorders += reorders_at(residue, place).change if moved else 0
        copies += copies_at(residue, place).change if copied else 0
        rows |= residue.take([*moved, *copied])
    phrases = [more_or_fewer(reorders, "reorder")] if reorders else []
    if copies:
        phrases.append(f"{more_or_fewer(copies, 'copy', 'copies')} ({outermost(rows)})")
    return ", ".join(phrases), rows
