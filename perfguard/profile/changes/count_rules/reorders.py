"""Reorders of oneDNN that nothing else explains."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, listed, more_or_fewer, where
from perfguard.profile.changes.count_rules.movements import changed_places, is_reorder, open_reorders, reorders_at
from perfguard.profile.changes.count_rules.residue import Counts
from perfguard.profile.op_counts.census_details import primitive_detail
from perfguard.records.steps.ops import CensusKind
from perfguard.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.profile.changes.count_rules.residue import Place, Residue, RowKey


def reorders(residue: Residue) -> list[Fact]:
    """`2 reorders more in backward of Net.layer3 (abcd → aBcd16b, 1.5 MiB)`: a fact for each phase, more and fewer.

    Places with as many reorders as before, between other layouts, follow from something else and are left.
    """
    rows = [row for row in residue.open(CensusKind.PRIMITIVE) if is_reorder(row)]
    return [_fact(residue, places) for places in changed_places(residue, rows, reorders_at)]


def _fact(residue: Residue, places: Sequence[Place]) -> Fact:
    counts = sum((reorders_at(residue, place) for place in places), Counts())
    rows = [row for place in places for row in open_reorders(residue, place)]
    moved = _moved(residue, [row for row in rows if residue.change(row) * counts.change > 0])
    return Fact(
        rule=Rule.REORDERS,
        before=counts.before,
        after=counts.after,
        sentence=f"{more_or_fewer(counts.change, 'reorder')} {where(places)}{moved}",
        places=frozenset(places),
        rows=residue.take(rows),
        gravity=gravity_of(counts.change),
    )


def _moved(residue: Residue, rows: Sequence[RowKey]) -> str:
    """` (abcd → aBcd16b, 1.5 MiB)`: between which layouts, and how much they write; empty where nothing is known."""
    calls: Counter[str] = Counter()
    written_bytes = 0
    for row in rows:
        detail, count = primitive_detail(row.detail), abs(residue.change(row))
        written_bytes += detail.written_bytes * count
        if detail.tags:
            calls[detail.tags] += count
    parts = [listed(sorted(calls, key=lambda tags: (-calls[tags], tags)), limit=2)] if calls else []
    parts += [format_bytes(written_bytes)] if written_bytes else []
    return f" ({', '.join(parts)})" if parts else ""
