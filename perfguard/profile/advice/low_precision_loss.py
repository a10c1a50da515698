"""Losses that are reduced in bf16 or f16: cheaper by next to nothing, and wrong in the third digit."""

from __future__ import annotations

import math
from collections import Counter

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import Rule, finding_on
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import LOW_PRECISION, tensors_of
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import OpKey, OpTotal, StepPhase
from perfguard.units import format_calls

ID = "low-precision-loss"
_REDUCES = frozenset({Group.REDUCTION, Group.SOFTMAX, Group.LOSS})
_WRAPPERS = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax", "softmax"})
_Place = tuple[str, str]

_GAIN = Gain(
    text="none in time: the loss of RetinaNet came out different in bf16; keep losses, reductions above all, in f32 "
    "unless convergence is proven",
    source="Fu et al. (2022), arXiv:2206.10034, §2.6",
)


def _find(evidence: Evidence) -> list[Finding]:
    reductions = [total for total in evidence.totals if _reduces(total)]
    calls_in_full: Counter[_Place] = Counter()
    for total in reductions:
        if not _is_low(total):
            calls_in_full[_place_of(total.key)] += round(total.calls)
    # Autocast converts within the op that the program calls: the same op then runs once more on f32.
    reduced = [total for total in reductions if _is_low(total) and calls_in_full[_place_of(total.key)] < total.calls]
    if not reduced:
        return []
    calls = format_calls(math.fsum(total.calls for total in reduced))
    names = listed(sorted({f"{short(total.key.op)} of {tensors_of(total.key)[0].dtype}" for total in reduced}))
    return [
        finding_on(
            evidence,
            reduced,
            rule_id=ID,
            title="the loss is reduced in low precision",
            severity=Severity.HINT,
            seen=(f"{calls} a step: {names}",),
            gain=_GAIN,
            trial=after_edit(evidence.subject, "loss_function(outputs.float(), targets), outside of autocast"),
        )
    ]


def _reduces(total: OpTotal) -> bool:
    """Whether an op itself reduces a tensor of the loss: wrappers run what they call in a dtype of its own."""
    key, tensors = total.key, tensors_of(total.key)
    is_reduction = group_of(key.op) in _REDUCES and short(key.op) not in _WRAPPERS
    return key.phase is StepPhase.LOSS and is_reduction and bool(tensors) and tensors[0].elements > 1


def _is_low(total: OpTotal) -> bool:
    return tensors_of(total.key)[0].dtype in LOW_PRECISION


def _place_of(key: OpKey) -> _Place:
    return key.module, key.op


RULE = Rule(id=ID, finds="losses that are reduced in bf16 or f16", find=_find)
