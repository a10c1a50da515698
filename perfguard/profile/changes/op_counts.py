"""What changed between two op counts: exact, in few facts, worst first.

A rule takes from the `Residue` what it explains. Causes come before effects: a lost memory format before the reorders
that it brings. The last rules take whatever is left, so that no difference is lost. Every rule is symmetric: with the
counts exchanged it finds the same changes, the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perfguard.profile.changes.calls import attach, calls, executions, minor_calls, moves
from perfguard.profile.changes.counted import Change, Rule
from perfguard.profile.changes.events import allocations, cache_misses, compile_events
from perfguard.profile.changes.fusions import fusions, optimizers
from perfguard.profile.changes.implementations import convolutions, implementations, left_libraries
from perfguard.profile.changes.movements import copies, other_reorders, reorders
from perfguard.profile.changes.pairs import Difference, pair_rows
from perfguard.profile.changes.residue import Pair, Residue
from perfguard.profile.changes.tensors import dtypes, layouts, shapes
from perfguard.profile.libraries.implementations import isa_class
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import OpCountChange, OpCounts

_ORDER = {rule: number for number, rule in enumerate(Rule)}
_SEVERITIES = tuple(Severity)


def comparable(before: OpCounts, after: OpCounts) -> Fact | None:
    """Why stored op counts say nothing about other ones; None where every difference is a change.

    Another version of torch is no reason: what it counts otherwise is what an upgrade changed, and `compare_op_counts`
    says so. Two arms that were measured together are always comparable, because an instruction set that only one of
    them may use is then the finding.
    """
    if before.case_id != after.case_id:
        return fact("op_counts.other_case", case_id=after.case_id, counted=before.case_id)
    if isa_class(before.isa_class) != isa_class(after.isa_class):
        return fact("op_counts.other_isa", counted=before.isa_class or None, here=after.isa_class or None)
    return None


def compare_op_counts(before: OpCounts, after: OpCounts) -> tuple[OpCountChange, ...]:
    """What changed in what a step executes; empty where it is the same.

    Counts are compared exactly. Bytes of allocations may differ by less than `ALIGNMENT_BYTES` for each of them.

    Args:
        before: Of the baseline. Whether the two say anything about each other, `comparable` knows.
        after: Of the candidate.

    Returns:
        Gravest first; improvements last. With another torch, each fact has both versions.
    """
    return records_of(classify(before, after))


def records_of(changes: Sequence[Change]) -> tuple[OpCountChange, ...]:
    """Changes without the rows that they explain."""
    return tuple(
        OpCountChange(
            fact=change.fact,
            phase=change.phase,
            module=change.module,
            rule=change.rule.value,
            before=change.counts.before,
            after=change.counts.after,
        )
        for change in changes
    )


def classify(before: OpCounts, after: OpCounts) -> Sequence[Change]:
    """The changes with the rows that each of them explains: together, every row that differs; worst first."""
    residue = Residue(before, after)
    found = [
        *compile_events(residue),
        *cache_misses(residue),
        *moves(residue),
        *allocations(residue),
        *optimizers(residue),
        *fusions(residue),
        *convolutions(residue),
    ]
    found += _of_pairs(residue, pair_rows(residue))
    found += [*left_libraries(residue), *calls(residue), *reorders(residue), *copies(residue)]
    found = [*attach(residue, found), *_of_pairs(residue, pair_rows(residue, minor=True))]
    found += [*minor_calls(residue), *executions(residue), *other_reorders(residue)]
    if before.torch != after.torch:
        versions = {"torch_before": before.torch, "torch_after": after.torch}
        found = [replace(one, fact=replace(one.fact, values={**one.fact.values, **versions})) for one in found]
    return sorted(found, key=_reading_order)


def _of_pairs(residue: Residue, pairs: Mapping[Difference, Sequence[Pair]]) -> list[Change]:
    return [
        *implementations(pairs.get(Difference.IMPLEMENTATION, ())),
        *layouts(residue, pairs.get(Difference.LAYOUT, ())),
        *dtypes(residue, pairs.get(Difference.DTYPE, ())),
        *shapes(pairs.get(Difference.SHAPES, ())),
    ]


def _reading_order(change: Change) -> tuple[int, int, int, str, str]:
    severity = _SEVERITIES.index(change.fact.severity)
    return severity, _ORDER[change.rule], -abs(change.counts.change), change.module, repr(change.fact)
