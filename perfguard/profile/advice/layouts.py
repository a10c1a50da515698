"""Memory formats: channels_last that is lost, mixed with another layout, or never tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING, calls_of, names_of, on_ops
from perfguard.profile.advice.tensors import CHANNELS_LAST, tensors_of
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpTotal, StepPhase

LEAST_CONVOLUTION_SHARE = 0.1
"""Part of a step in convolutions from which their layout is worth a try: a third of a tenth of the step, which is what
the measured example saved, is still several times what a gate sees."""

_CONVOLUTION = "aten::convolution"
"""Every convolution of eager mode passes through it once, with its tensors as the program gave them."""
_MOVES = frozenset({Group.COPY, Group.VIEWS, Group.CONVOLUTION})
"""Ops whose task it is to change a layout, or that leave the reading to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """One kind of convolution that a step calls."""

    total: OpTotal
    reads: str
    """Layout of what it reads; empty where that is left open or unknown."""
    weights: str
    """Layout of its weights, likewise."""

    @property
    def wants_channels_last(self) -> bool:
        return self.reads in CHANNELS_LAST or self.weights in CHANNELS_LAST

    @property
    def reads_another(self) -> bool:
        """Whether it surely reads another layout."""
        return bool(self.reads) and self.reads not in CHANNELS_LAST


def layout_lost(evidence: Evidence) -> list[Finding]:
    """A channels_last model some of whose convolutions read another layout.

    Between the two, tensors are copied; and convolutions of 1x1 kernels, whose weights fit both layouts, hand the wrong
    one on.
    """
    convolutions = _convolutions(evidence)
    lost = [each for each in convolutions if each.reads_another]
    if not lost or not any(each.wants_channels_last for each in convolutions):
        return []
    modules = {each.total.key.module for each in lost}
    concerned = [
        total
        for total in evidence.totals
        if total.key.module in modules
        and group_of(total.key.op) in {Group.CONVOLUTION, Group.COPY}
        and total.self_s > 0
    ]
    copies_s = evidence.seconds_of(total for total in concerned if group_of(total.key.op) is Group.COPY)
    seen = fact("seen.layout_lost", lost=_calls(lost), convolutions=_calls(convolutions), copies_s=copies_s)
    return on_ops(evidence, concerned, "layout_lost", seen, least_share=WORTH_TELLING)


def channels_last_untried(evidence: Evidence) -> list[Finding]:
    """A model of convolutions that never uses channels_last."""
    convolutions = _convolutions(evidence)
    plain = [each for each in convolutions if each.reads_another]
    if not plain or any(each.wants_channels_last for each in convolutions):
        return []
    concerned = [total for total in evidence.totals if group_of(total.key.op) is Group.CONVOLUTION]
    # What has one channel, or one pixel, is both at once.
    seen = fact("seen.contiguous", convolutions=_calls(convolutions), contiguous=_calls(plain))
    severity, least = Severity.INFO, LEAST_CONVOLUTION_SHARE
    return on_ops(evidence, concerned, "channels_last_untried", seen, severity=severity, least_share=least)


def mixed_layouts(evidence: Evidence) -> list[Finding]:
    """Ops that read one tensor in channels_last and another of the same shape contiguous, one of them by large steps.

    Mostly in backward: what follows the model's last convolution hands back contiguous gradients, and ops that take the
    layout of their first tensor hand them on.
    """
    mixed = [total for total in evidence.totals if _is_mixed(total)]
    seen = fact("seen.calls", calls=calls_of(mixed), ops=names_of(mixed))
    return on_ops(evidence, mixed, "mixed_layouts", seen, least_share=WORTH_TELLING)


def _convolutions(evidence: Evidence) -> list[_Convolution]:
    """Convolutions on images and volumes, outside of backward."""
    found = []
    for total in evidence.totals:
        tensors = tensors_of(total.key)
        if total.key.op == _CONVOLUTION and total.key.phase is not StepPhase.BACKWARD and len(tensors) > 1:
            image, weights = tensors[:2]
            found.append(_Convolution(total=total, reads=image.image_layout, weights=weights.image_layout))
    return found


def _calls(convolutions: Sequence[_Convolution]) -> float:
    return calls_of(each.total for each in convolutions)


def _is_mixed(total: OpTotal) -> bool:
    if group_of(total.key.op) in _MOVES:
        return False
    layouts: dict[tuple[int, ...], set[bool]] = {}
    for tensor in tensors_of(total.key):
        if tensor.image_layout in CHANNELS_LAST | {"contiguous"}:
            layouts.setdefault(tensor.shape, set()).add(tensor.image_layout in CHANNELS_LAST)
    return any(len(kinds) > 1 for kinds in layouts.values())
