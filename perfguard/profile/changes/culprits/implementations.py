"""Rule: libraries chose other kernels, or were left; what went from one ISA to another did so for one reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet

from perfguard.profile.changes.culprits.causes import Cause, Certainty, Rule
from perfguard.profile.changes.diff import OpDiff
from perfguard.profile.changes.implementation_changes import implementation_change
from perfguard.records.steps.ops import ChangeClass


def implementation_causes(diff: OpDiff, free: AbstractSet[int]) -> list[Cause]:
    """One cause for each pair of ISAs: a cap changes every kernel, a fallback to the reference only its own."""
    by_isa: dict[str, list[int]] = defaultdict(list)
    for column in sorted(free):
        if diff.changes[column] is ChangeClass.OTHER_IMPLEMENTATION:
            went, came = implementation_change(diff.ops, column)
            by_isa[f"{_isa(went[0])} → {_isa(came[0])}"].append(column)
    return [
        Cause(rule=Rule.IMPLEMENTATION, certainty=Certainty.EXACT, columns=tuple(columns), label=label)
        for label, columns in by_isa.items()
    ]


def _isa(implementation: str) -> str:
    """`avx512_core` of `brg_conv_fwd:avx512_core`; the whole of what has no ISA: `ref:any`, `sgemm of MKL`."""
    kernel, _, isa = implementation.rpartition(":")
    return implementation if kernel in {"", "ref"} or isa == "any" else isa
