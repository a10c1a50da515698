"""Ops that read one tensor in channels_last and another of the same shape contiguous, so one of the two by large steps.

Mostly in backward: what follows the model's last convolution hands back contiguous gradients, and ops that take the
layout of their first tensor hand them on.
"""

from __future__ import annotations

import math

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import CHANNELS_LAST, tensors_of
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding
from perfguard.records.steps.ops import OpTotal
from perfguard.units import format_calls, format_share

ID = "mixed-layouts"
_MOVES = frozenset({Group.COPY, Group.VIEWS, Group.CONVOLUTION})
"""Ops whose task it is to change a layout, or that leave the reading to others."""


def _find(evidence: Evidence) -> list[Finding]:
    mixed = [total for total in evidence.totals if _is_mixed(total)]
    share = evidence.share_of(mixed)
    if share is None or share < WORTH_TELLING:
        return []
    names = listed(dict.fromkeys(short(total.key.op) for total in sorted(mixed, key=lambda total: -total.self_s)))
    calls = format_calls(math.fsum(total.calls for total in mixed))
    return [
        finding_on(
            evidence,
            mixed,
            rule_id=ID,
            title="ops combine channels_last tensors with contiguous ones",
            severity=severity_by(share),
            seen=(f"{calls} a step of {names}: {format_share(share)} of it",),
            gain=UNKNOWN_GAIN,
            trial=after_edit(
                evidence.subject,
                "give the gradient the layout where it enters the convolutions: x.register_hook(lambda gradient: "
                "gradient.contiguous(memory_format=torch.channels_last)) on the output of the last of them",
            ),
        )
    ]


def _is_mixed(total: OpTotal) -> bool:
    if group_of(total.key.op) in _MOVES:
        return False
    layouts: dict[tuple[int, ...], set[bool]] = {}
    for tensor in tensors_of(total.key):
        if tensor.image_layout in CHANNELS_LAST | {"contiguous"}:
            layouts.setdefault(tensor.shape, set()).add(tensor.image_layout in CHANNELS_LAST)
    return any(len(kinds) > 1 for kinds in layouts.values())


RULE = Rule(
    id=ID,
    finds="ops on tensors of two memory formats",
    find=_find,
    changes=frozenset({ChangeRule.LAYOUT}),
)
