"""Double precision that slipped into a model of another precision, as numpy's arrays and Python's lists bring it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import FLOATING, tensors_of
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.trace.op_groups import LIBRARY_GROUPS, Group, group_of
from perfguard.records.steps.findings import Finding, Gain
from perfguard.records.steps.ops import OpTotal
from perfguard.units import format_calls, format_share

ID = "double-precision"
_DOUBLE = "f64"

_GAIN = Gain(
    text="unknown; f64 moves twice the bytes of f32, and half as many values fit into a vector",
    source="the formats' sizes",
)


def _find(evidence: Evidence) -> list[Finding]:
    doubles: list[OpTotal] = []
    others: list[OpTotal] = []
    for total in evidence.totals:
        # Numbers of Python show as f64 tensors without dimensions.
        dtypes = FLOATING & {tensor.dtype for tensor in tensors_of(total.key) if tensor.shape}
        if dtypes and group_of(total.key.op) is not Group.VIEWS:
            (doubles if _DOUBLE in dtypes else others).append(total)
    share = evidence.share_of(doubles)
    if share is None or share < WORTH_TELLING or _is_meant(doubles, others):
        return []
    calls = format_calls(_calls(doubles))
    return [
        finding_on(
            evidence,
            doubles,
            rule_id=ID,
            title="some ops compute in double precision",
            severity=severity_by(share),
            seen=(f"{calls} a step on f64 tensors: {format_share(share)} of it; the others are narrower",),
            gain=_GAIN,
            trial=after_edit(
                evidence.subject,
                "make these tensors f32 where they are made: dtype=torch.float32, or .float() on what numpy gave",
            ),
        )
    ]


def _is_meant(doubles: Sequence[OpTotal], others: Sequence[OpTotal]) -> bool:
    """Whether the step was meant to be one of doubles: most of its products are, which weights of f32 would refuse.

    Calls tell, not seconds: a slip that takes most of the step's time is the worst of them.
    """
    double_products, other_products = _products(doubles), _products(others)
    if double_products or other_products:
        return _calls(double_products) >= _calls(other_products)
    return _calls(doubles) >= _calls(others)


def _products(totals: Iterable[OpTotal]) -> list[OpTotal]:
    return [total for total in totals if group_of(total.key.op) in LIBRARY_GROUPS]


def _calls(totals: Iterable[OpTotal]) -> float:
    return math.fsum(total.calls for total in totals)


RULE = Rule(
    id=ID,
    finds="f64 in a step that is otherwise narrower",
    find=_find,
    changes=frozenset({ChangeRule.DTYPE}),
)
