"""Convolutions that torch computes with another op: in oneDNN, or in its own slow loops."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Gravity, Rule, where
from perfguard.profile.changes.count_rules.op_names import CONVOLUTIONS, computes, leading, named, short
from perfguard.profile.changes.count_rules.residue import Place
from perfguard.records.steps.ops import CensusKind, StepPhase
from perfguard.units import format_count

if TYPE_CHECKING:
    from perfguard.profile.changes.count_rules.residue import Residue, RowKey

_PRIMITIVES = ("convolution", "deconvolution", "reorder", "sgemm", "dgemm", "gemm_")
"""What convolutions execute in oneDNN and MKL."""
_BIAS_GRADIENT = "aten::sum"
"""oneDNN computes it along with that of the weights."""


def convolutions(residue: Residue) -> list[Fact]:
    """`mkldnn_convolution → thnn_conv2d, 53 calls in forward and backward of ResNet`."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Place]] = defaultdict(list)
    for place in sorted({row.place for row in residue.open(CensusKind.OP)}):
        changes = {op: n for op, n in residue.op_changes(place).items() if short(op) in CONVOLUTIONS}
        lost = tuple(leading(op for op, change in changes.items() if change < 0))
        gained = tuple(leading(op for op, change in changes.items() if change > 0))
        if lost and gained:
            found[lost, gained].append(place)
    return [_fact(residue, lost, gained, places) for (lost, gained), places in found.items()]


def _fact(residue: Residue, lost: tuple[str, ...], gained: tuple[str, ...], places: list[Place]) -> Fact:
    ops = (row for place in places for row in residue.at(place) if row.kind is CensusKind.OP)
    counts = residue.counts(row for row in ops if row.name in lost + gained)
    # The backward of oneDNN's convolution is no op of its own: it goes with the module.
    backward = [Place(phase=StepPhase.BACKWARD, module=place.module) for place in places]
    rows = residue.take(
        row for place in {*places, *backward} for row in residue.at(place) if _belongs_to_convolution(row)
    )
    changed = frozenset(row.place for row in rows)
    calls = format_count(max(counts.before, counts.after), "call")
    return Fact(
        rule=Rule.IMPLEMENTATION,
        before=counts.before,
        after=counts.after,
        sentence=f"{named(lost)} → {named(gained)}, {calls} {where(changed)}",
        places=changed,
        rows=rows,
        gravity=_gravity(lost, gained),
    )


def _gravity(lost: tuple[str, ...], gained: tuple[str, ...]) -> Gravity:
    was_in_onednn, is_in_onednn = (any("mkldnn" in op for op in ops) for ops in (lost, gained))
    if was_in_onednn == is_in_onednn:
        return Gravity.NOTABLE
    return Gravity.GRAVE if was_in_onednn else Gravity.HARMLESS


def _belongs_to_convolution(row: RowKey) -> bool:
    if row.kind is CensusKind.PRIMITIVE:
        return row.name.startswith(_PRIMITIVES)
    if row.kind is not CensusKind.OP:
        return False
    if row.name == _BIAS_GRADIENT and row.place.phase is StepPhase.BACKWARD:
        return True
    return short(row.name) in CONVOLUTIONS or not computes(row.name)
