"""What changed between two censuses: exact, told as few facts, gravest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.allocations import allocations
from perfguard.profile.changes.count_rules.cache_misses import cache_misses
from perfguard.profile.changes.count_rules.calls import calls
from perfguard.profile.changes.count_rules.compile_events import compile_events
from perfguard.profile.changes.count_rules.convolutions import convolutions
from perfguard.profile.changes.count_rules.copies import copies
from perfguard.profile.changes.count_rules.dtype import dtypes
from perfguard.profile.changes.count_rules.facts import Fact, Rule
from perfguard.profile.changes.count_rules.fusions import fusions
from perfguard.profile.changes.count_rules.implementation import implementations, left_libraries
from perfguard.profile.changes.count_rules.layout import layouts
from perfguard.profile.changes.count_rules.leftovers import attach, executions, minor_calls, other_reorders
from perfguard.profile.changes.count_rules.moves import moves
from perfguard.profile.changes.count_rules.optimizers import optimizers
from perfguard.profile.changes.count_rules.pairs import Difference, pair_rows
from perfguard.profile.changes.count_rules.reorders import reorders
from perfguard.profile.changes.count_rules.residue import Residue
from perfguard.profile.changes.count_rules.shapes import shapes
from perfguard.profile.libraries.implementations import isa_class
from perfguard.records.steps.ops import Census, CensusChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfguard.profile.changes.count_rules.residue import Pair

_ORDER = {rule: number for number, rule in enumerate(Rule)}


def comparable(before: Census, after: Census) -> str | None:
    """Why a stored census says nothing about another one, as a sentence; None where every difference is a change.

    Another version of torch is no reason: what it counts otherwise is what an upgrade changed, and `compare_censuses`
    says so. Two arms that were measured together are always comparable, because an instruction set that only one of
    them may use is then the finding.
    """
    if before.case_id != after.case_id:
        return f"the census is of {before.case_id}, not of {after.case_id}"
    if isa_class(before.isa_class) != isa_class(after.isa_class):
        return (
            f"the census was taken on a machine with {before.isa_class or 'an unknown instruction set'}, this one has "
            f"{after.isa_class or 'an unknown one'}: their libraries rightly choose other implementations; run "
            "`perfguard baseline update` on a machine of this kind"
        )
    return None


def upgrade(before: Census, after: Census) -> str | None:
    """`torch 2.12.0 → 2.13.0`; None where both ran the same."""
    return None if before.torch == after.torch else f"torch {before.torch} → {after.torch}"


def compare_censuses(before: Census, after: Census) -> tuple[CensusChange, ...]:
    """What the candidate's step executes otherwise; empty where it is the same.

    Counts are compared exactly. Bytes of allocations may differ by less than `ALIGNMENT_BYTES` for each of them.

    Args:
        before: Census of the baseline. Whether the two say anything about each other, `comparable` knows.
        after: Census of the candidate.

    Returns:
        Gravest first; improvements last. With another torch, each sentence ends with the upgrade.
    """
    label = upgrade(before, after)
    facts = sorted(explain(before, after), key=_reading_order)
    return tuple(
        CensusChange(
            phase=fact.phase,
            module=fact.module,
            rule=fact.rule.value,
            before=fact.before,
            after=fact.after,
            sentence=f"{fact.sentence} ({label})" if label else fact.sentence,
        )
        for fact in facts
    )


def explain(before: Census, after: Census) -> Sequence[Fact]:
    """The facts with the rows that each of them explains: together, every row that differs."""
    residue = Residue(before, after)
    facts = [
        *compile_events(residue),
        *cache_misses(residue),
        *moves(residue),
        *allocations(residue),
        *optimizers(residue),
        *fusions(residue),
        *convolutions(residue),
    ]
    facts += _of_pairs(residue, pair_rows(residue))
    facts += [*left_libraries(residue), *calls(residue), *reorders(residue), *copies(residue)]
    facts = [*attach(residue, facts), *_of_pairs(residue, pair_rows(residue, minor=True))]
    return [*facts, *minor_calls(residue), *executions(residue), *other_reorders(residue)]


def _of_pairs(residue: Residue, pairs: Mapping[Difference, Sequence[Pair]]) -> list[Fact]:
    return [
        *implementations(pairs.get(Difference.IMPLEMENTATION, ())),
        *layouts(residue, pairs.get(Difference.LAYOUT, ())),
        *dtypes(residue, pairs.get(Difference.DTYPE, ())),
        *shapes(pairs.get(Difference.SHAPES, ())),
    ]


def _reading_order(fact: Fact) -> tuple[int, int, int, str]:
    return fact.gravity, _ORDER[fact.rule], -abs(fact.after - fact.before), fact.sentence
