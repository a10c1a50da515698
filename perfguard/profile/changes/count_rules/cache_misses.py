"""Primitives that oneDNN had to make anew although the step is steady."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, listed
from perfguard.profile.op_counts.census import CACHE_MISS
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from perfguard.profile.changes.count_rules.residue import Residue


def cache_misses(residue: Residue) -> list[Fact]:
    """`steady-state primitive-cache misses: 1 a step (deconvolution FWD_D)`; one fact for all of them.

    A miss in a steady step means that shapes keep changing, or that the cache is too small for the model.
    """
    rows = [row for row in residue.open(CensusKind.PRIMITIVE) if row.name == CACHE_MISS]
    if not rows:
        return []
    counts = residue.counts(residue.all(CensusKind.PRIMITIVE, CACHE_MISS))
    primitives = listed(sorted({row.detail for row in rows}))
    amount = f"{counts.after:,} a step" if not counts.before else f"{counts.before:,} → {counts.after:,} a step"
    return [
        Fact(
            rule=Rule.CACHE_MISSES,
            before=counts.before,
            after=counts.after,
            sentence=f"steady-state primitive-cache misses: {amount} ({primitives})",
            places=frozenset(row.place for row in rows),
            rows=residue.take(rows),
            gravity=gravity_of(counts.change),
        )
    ]
