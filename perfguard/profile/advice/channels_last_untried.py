"""A model of convolutions that never uses channels_last."""

from __future__ import annotations

from perfguard.profile.advice.convolutions import CHANNELS_LAST_GAIN, convolutions_of
from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule, finding_on
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import CHANNELS_LAST
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.steps.findings import Finding, Severity
from perfguard.units import format_number, format_share

ID = "channels-last-untried"
LEAST_CONVOLUTION_SHARE = 0.1
"""Part of a step in convolutions from which their layout is worth a try: a third of a tenth of the step, which is what
the measured example saved, is still several times what a gate sees."""


def _find(evidence: Evidence) -> list[Finding]:
    convolutions = convolutions_of(evidence)
    plain = [each for each in convolutions if each.is_other]
    if not plain or any(each.is_channels_last or each.weights in CHANNELS_LAST for each in convolutions):
        return []
    concerned = [total for total in evidence.totals if group_of(total.key.op) is Group.CONVOLUTION]
    share = evidence.share_of(concerned)
    if share is None or share < LEAST_CONVOLUTION_SHARE:
        return []
    calls, contiguous = (sum(each.total.calls for each in found) for found in (convolutions, plain))
    many = "1 convolution" if calls == 1 else f"{format_number(calls)} convolutions"
    # What has one channel, or one pixel, is both at once.
    some = "none of them" if calls == contiguous else f"{format_number(contiguous)} of them surely contiguous and none"
    return [
        finding_on(
            evidence,
            concerned,
            rule_id=ID,
            title="all convolutions read contiguous tensors",
            severity=Severity.HINT,
            seen=(f"{many} a step, {some} channels_last; together they take {format_share(share)} of the step",),
            gain=CHANNELS_LAST_GAIN,
            trial=after_edit(
                evidence.subject,
                "model = model.to(memory_format=torch.channels_last), and the same for the model's input",
            ),
        )
    ]


RULE = Rule(id=ID, finds="models of convolutions that do not use channels_last", find=_find)
