"""A channels_last model some of whose convolutions read another layout.

Between the two, tensors are copied; and convolutions of 1x1 kernels, whose weights fit both layouts, hand the wrong one
on.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.profile.advice.convolutions import CHANNELS_LAST_GAIN, Convolution, convolutions_of
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import CHANNELS_LAST
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.steps.findings import Finding
from perfguard.units import format_number, format_seconds

ID = "layout-lost"
_CONCERNED = frozenset({Group.CONVOLUTION, Group.COPY})


def _find(evidence: Evidence) -> list[Finding]:
    convolutions = convolutions_of(evidence)
    lost = [each for each in convolutions if each.is_other]
    if not lost or not any(each.is_channels_last or each.weights in CHANNELS_LAST for each in convolutions):
        return []
    modules = {each.total.key.module for each in lost}
    concerned = [
        total
        for total in evidence.totals
        if total.key.module in modules and group_of(total.key.op) in _CONCERNED and total.self_s > 0
    ]
    share = evidence.share_of(concerned)
    if share is None or share < WORTH_TELLING:
        return []
    copies_s = evidence.seconds_of(total for total in concerned if group_of(total.key.op) is Group.COPY)
    read = "reads tensors that are" if _calls(lost) == "1" else "read tensors that are"
    return [
        finding_on(
            evidence,
            concerned,
            rule_id=ID,
            title="channels_last is lost on the way through the model",
            severity=severity_by(share),
            seen=(
                f"{_calls(lost)} of {_calls(convolutions)} convolutions of a step {read} not channels_last",
                f"copies at these places take {format_seconds(copies_s)} a step",
            ),
            gain=CHANNELS_LAST_GAIN,
            trial=after_edit(
                evidence.subject,
                "find what makes the tensor contiguous before the first of these convolutions (.contiguous(), .view(), "
                ".reshape(), an op without a channels_last kernel) and keep the layout there; convert the input itself "
                "with x.to(memory_format=torch.channels_last)",
            ),
        )
    ]


def _calls(convolutions: Sequence[Convolution]) -> str:
    return format_number(sum(each.total.calls for each in convolutions))


RULE = Rule(
    id=ID,
    finds="convolutions of a channels_last model that read another layout",
    find=_find,
    changes=frozenset({ChangeRule.LAYOUT}),
)
