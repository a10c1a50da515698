"""Copies of tensors that nothing else explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, more_or_fewer, where
from perfguard.profile.changes.count_rules.movements import changed_places, copies_at, is_copying, open_copies
from perfguard.profile.changes.count_rules.op_names import COPIES, short
from perfguard.profile.changes.count_rules.residue import Counts
from perfguard.profile.op_counts.census_details import op_detail
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.profile.changes.count_rules.residue import Place, Residue, RowKey


def copies(residue: Residue) -> list[Fact]:
    """`1 copy more in forward of Net.stem (contiguous of f32 [2,3,64,64])`: a fact for each phase, more and fewer."""
    rows = [row for row in residue.open(CensusKind.OP) if is_copying(row)]
    return [_fact(residue, places) for places in changed_places(residue, rows, copies_at)]


def _fact(residue: Residue, places: Sequence[Place]) -> Fact:
    counts = sum((copies_at(residue, place) for place in places), Counts())
    rows = [row for place in places for row in open_copies(residue, place)]
    telling = [row for row in rows if residue.change(row) * counts.change > 0] or rows
    return Fact(
        rule=Rule.COPIES,
        before=counts.before,
        after=counts.after,
        sentence=f"{more_or_fewer(counts.change, 'copy', 'copies')} {where(places)} ({_example(residue, telling)})",
        places=frozenset(places),
        rows=residue.take(rows),
        gravity=gravity_of(counts.change),
    )


def _example(residue: Residue, rows: Sequence[RowKey]) -> str:
    """`contiguous of f32 [2,256,56,56]`: the outermost op, which the code calls, and its most frequent tensor."""
    row = min(rows, key=lambda row: (COPIES.index(short(row.name)), -abs(residue.change(row)), row))
    detail = op_detail(row.detail)
    tensor = " ".join(part.split(" ")[0] for part in (detail.dtypes, detail.shapes) if part)
    return f"{short(row.name)} of {tensor}" if tensor else short(row.name)
