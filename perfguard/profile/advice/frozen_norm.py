"""Batch norm with fixed statistics that is written out as a product and a sum, as torchvision's FrozenBatchNorm2d is.

Each of the two reads and writes the whole tensor, forward and backward again, and nothing can be fused into the
convolution before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.advice.tensors import tensors_of
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import base_name
from perfguard.records.steps.findings import Finding, Gain
from perfguard.records.steps.ops import PYTHON_OP, OpKey, OpTotal, StepPhase
from perfguard.units import format_count, format_seconds

ID = "frozen-batch-norm"

_GAIN = Gain(
    text="+29.8 % in training RetinaNet-ResNeXt50 with one kernel for it; fused into the convolution, potentially 30 %",
    source="Fu et al. (2022), arXiv:2206.10034",
)
_SCALE, _SHIFT = "mul", "add"
_NORM = "batch_norm"


def _find(evidence: Evidence) -> list[Finding]:
    forward: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.FORWARD and total.key.op != PYTHON_OP:
            forward[total.key.module].append(total)
    modules = {module for module, totals in forward.items() if module and _is_written_out(totals)}
    concerned = [
        total
        for total in evidence.totals
        if total.key.module in modules and total.key.phase in {StepPhase.FORWARD, StepPhase.BACKWARD}
    ]
    share = evidence.share_of(concerned)
    if share is None or share < WORTH_TELLING:
        return []
    return [
        finding_on(
            evidence,
            concerned,
            rule_id=ID,
            title="frozen batch norms run as a product and a sum",
            severity=severity_by(share),
            seen=(
                f"in {_counted(evidence, modules)} each channel is scaled and shifted by two ops",
                f"they take {format_seconds(evidence.seconds_of(concerned))} a step, forward and backward",
            ),
            gain=_GAIN,
            trial=after_edit(
                evidence.subject,
                "call torch.nn.functional.batch_norm(x, mean, var, weight, bias, training=False), or multiply the "
                "weights of the convolution before with the scale in each step and give it the shift as its bias",
            ),
        )
    ]


def _is_written_out(totals: Sequence[OpTotal]) -> bool:
    names = {base_name(total.key.op) for total in totals}
    each_channel = {base_name(total.key.op) for total in totals if _is_by_channel(total.key)}
    return not any(_NORM in name for name in names) and {_SCALE, _SHIFT} <= each_channel


def _is_by_channel(key: OpKey) -> bool:
    """Whether an op combines images `[n,c,h,w]` with one value for each channel, `[1,c,1,1]` or `[c,1,1]`."""
    if short(key.op).rstrip("_") not in {_SCALE, _SHIFT}:
        return False
    tensors = tensors_of(key)
    if len(tensors) < 2 or len(tensors[0].shape) != 4 or tensors[0].shape[1] < 2:
        return False
    images, values = tensors[:2]
    return values.shape in {(1, images.shape[1], 1, 1), (images.shape[1], 1, 1)} and images.shape != values.shape


def _counted(evidence: Evidence, modules: set[str]) -> str:
    """`53 modules (FrozenBatchNorm2d)`, with their class where the process told it."""
    facts = evidence.program.modules if evidence.program is not None else ()
    kinds = sorted({each.kind for each in facts if each.path in modules})
    return format_count(len(modules), "module") + (f" ({', '.join(kinds)})" if kinds else "")


RULE = Rule(
    id=ID,
    finds="frozen batch norms that are written out as products and sums",
    find=_find,
    changes=frozenset({ChangeRule.FUSION}),
)
