"""How often a step allocates, and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, where
from perfguard.profile.op_counts.census import ALLOCATIONS
from perfguard.records.steps.ops import CensusKind
from perfguard.units import format_bytes

if TYPE_CHECKING:
    from perfguard.profile.changes.count_rules.residue import Counts, Residue


def allocations(residue: Residue) -> list[Fact]:
    """`allocations: 212 → 260 a step, 1.2 GiB → 1.5 GiB, in forward of ResNet`: one fact for the whole step.

    What a step allocates follows from what it executes, so that one cause shows in many places.
    """
    rows = residue.open(CensusKind.ALLOCATION)
    if not rows:
        return []
    of_step = residue.all(CensusKind.ALLOCATION, ALLOCATIONS)
    counts, sizes = residue.counts(of_step), residue.sizes(of_step)
    places = frozenset(row.place for row in rows)
    return [
        Fact(
            rule=Rule.ALLOCATIONS,
            before=counts.before,
            after=counts.after,
            sentence=f"allocations: {_amount(counts, sizes)}, {where(places)}",
            places=places,
            rows=residue.take(rows),
            gravity=gravity_of(sizes.change or counts.change),
        )
    ]


def _amount(counts: Counts, sizes: Counts) -> str:
    """`212 → 260 a step, 1.2 GiB → 1.5 GiB (300.0 MiB more)`."""
    number = f"{counts.before:,} → {counts.after:,} a step" if counts.change else f"{counts.after:,} a step"
    if not sizes.change:
        moved = "" if counts.change else ", at other places"
        return f"{number}, {format_bytes(sizes.after)}{moved}"
    # Formatting rounds, so that the difference in a step that allocates gigabytes is said apart.
    difference = f"{format_bytes(abs(sizes.change))} {'more' if sizes.change > 0 else 'less'}"
    return f"{number}, {format_bytes(sizes.before)} → {format_bytes(sizes.after)} ({difference})"
