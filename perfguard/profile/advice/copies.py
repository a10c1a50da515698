"""Copies of tensors as they are: `.contiguous()`, `.clone()`, `reshape` where no view is possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import WORTH_A_CHANGE, Rule, finding_on, longest_first, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import Tensor, tensors_of
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.records.steps.findings import Finding, Gain
from perfguard.records.steps.ops import OpTotal
from perfguard.units import format_number, format_share

ID = "copies"
_OP = "aten::copy_"
"""What every copy ends in."""

_GAIN = Gain(
    text="unknown; a .contiguous() on a channels_last tensor cost 100 times a plain copy, and severely slowed models",
    source="pytorch#172205, pytorch#34977, pytorch#44943",
)


def find_copies(
    evidence: Evidence,
    *,
    one_dtype: bool,
    between: Callable[[Tensor, Tensor], str],
    rule_id: str,
    noun: str,
    title: str,
    gain: Gain,
    advice: str,
) -> list[Finding]:
    """One finding on all copies within one dtype, or on all between two; none where they take too little time.

    Args:
        evidence: The step.
        one_dtype: Whether it is about copies within one dtype.
        between: Names what a copy is between, from its source and its target.
        rule_id: Id of the finding.
        noun: What the copies are called, plural.
        title: Of the finding.
        gain: What others gained.
        advice: What to edit.
    """
    copies = [total for total in evidence.totals if _is_copy_within(total, one_dtype=one_dtype)]
    share = evidence.share_of(copies)
    if share is None or share < WORTH_A_CHANGE:
        return []
    calls = format_number(math.fsum(total.calls for total in copies))
    longest = _longest(evidence, copies, between)
    return [
        finding_on(
            evidence,
            copies,
            rule_id=rule_id,
            title=title,
            severity=severity_by(share),
            seen=(f"{calls} {noun} a step take {format_share(share)} of it, most of the time {longest}",),
            gain=gain,
            trial=after_edit(evidence.subject, advice),
        )
    ]


def _is_copy_within(total: OpTotal, *, one_dtype: bool) -> bool:
    tensors = tensors_of(total.key)
    if total.key.op != _OP or len(tensors) < 2 or not (tensors[0].dtype and tensors[1].dtype):
        return False
    return (tensors[0].dtype == tensors[1].dtype) is one_dtype


def _longest(evidence: Evidence, copies: Sequence[OpTotal], between: Callable[[Tensor, Tensor], str]) -> str:
    times_s = []
    for total in copies:
        target, source, *_ = tensors_of(total.key)  # of a copy the target comes first
        times_s.append((between(source, target), evidence.seconds_of((total,))))
    return longest_first(times_s)[0]


def _find(evidence: Evidence) -> list[Finding]:
    return find_copies(
        evidence,
        one_dtype=True,
        between=_layouts,
        rule_id=ID,
        noun="copies",
        title="tensors are copied as they are",
        gain=_GAIN,
        advice=(
            "leave .contiguous() and .clone() out where the next op takes any layout, use .view() instead of "
            ".reshape() to be told where a copy is needed, and write results into buffers with out="
        ),
    )


def _layouts(source: Tensor, target: Tensor) -> str:
    """`channels_last → contiguous of f32`."""
    return f"{source.layout or 'unknown'} → {target.layout or 'unknown'} of {target.dtype}"


RULE = Rule(
    id=ID,
    finds="copies that change nothing but a layout",
    find=_find,
    changes=frozenset({ChangeRule.COPIES}),
)
