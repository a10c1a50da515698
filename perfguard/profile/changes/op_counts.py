"""What changed between two op counts: exact, in few facts, worst first.

A rule takes from the `Residue` what it explains. Causes come before effects: a lost memory format before the reorders
that it brings. The last rules take whatever is left, so that no difference is lost. Every rule is symmetric: with the
counts exchanged it finds the same changes, the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfguard.profile.changes import calls
from perfguard.profile.changes.counted import Change, Residue, Rule
from perfguard.profile.changes.fusions import convolutions, fusions, left_libraries, optimizers
from perfguard.profile.changes.movements import copies, other_reorders, reorders
from perfguard.profile.changes.pairs import pair_changes
from perfguard.profile.libraries.implementations import isa_class
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import OpCountChange, OpCounts

_RULES = [rule.value for rule in Rule]
_SEVERITIES = list(Severity)


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
    Whether the two say anything about each other, `comparable` knows.

    Returns:
        Worst first; improvements last. With another torch, each fact has both versions.
    """
    return records_of(classify(before, after))


def records_of(changes: Sequence[Change]) -> tuple[OpCountChange, ...]:
    """Changes without the rows that they explain."""
    return tuple(change.record for change in changes)


def classify(before: OpCounts, after: OpCounts) -> Sequence[Change]:
    """The changes with the rows that each of them explains: together, every row that differs; worst first."""
    residue = Residue(before, after)
    found = [
        *calls.compile_events(residue),
        *calls.cache_misses(residue),
        *calls.moves(residue),
        *calls.allocations(residue),
        *optimizers(residue),
        *fusions(residue),
        *convolutions(residue),
        *pair_changes(residue),
        *left_libraries(residue),
        *calls.calls(residue),
        *reorders(residue),
        *copies(residue),
    ]
    found = [
        *calls.attach(residue, found),
        *pair_changes(residue, minor=True),
        *calls.minor_calls(residue),
        *calls.executions(residue),
        *other_reorders(residue),
    ]
    if before.torch != after.torch:
        versions = {"torch_before": before.torch, "torch_after": after.torch}
        found = [replace(change, record=_with_values(change.record, versions)) for change in found]
    return sorted(found, key=lambda change: _reading_order(change.record))


def _with_values(record: OpCountChange, values: dict[str, str]) -> OpCountChange:
    return replace(record, fact=replace(record.fact, values={**record.fact.values, **values}))


def _reading_order(change: OpCountChange) -> tuple[int, int, int, str, str]:
    severity, rule = _SEVERITIES.index(change.fact.severity), _RULES.index(change.rule)
    return severity, rule, -abs(change.after - change.before), change.module, repr(change.fact)
