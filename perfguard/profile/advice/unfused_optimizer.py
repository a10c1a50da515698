"""Optimizers that update one tensor at a time although torch has one kernel for all of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import named
from perfguard.profile.advice.rule import WORTH_TELLING, Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.op_names import is_copy, is_minor, short
from perfguard.records.steps.findings import Finding, Gain
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, StepPhase
from perfguard.units import format_calls, format_seconds

ID = "unfused-optimizer"

_HAS_FUSED = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})
"""Optimizers with fused kernels for CPUs. Source: torch/optim; on CPUs torch takes neither these nor foreach
unasked."""
_NO_UPDATE = frozenset({"zero_", "zeros_like", "fill_"})
_SPARSE = ("sparse", "coalesce", "_indices", "_values")
"""Parts of names of ops on sparse gradients, which the fused kernels refuse."""

_GAIN = Gain(
    text="a step of RetinaNet-ResNeXt50 took 732 ms with Adam's loop, 32 ms of it the update, and 717 ms with "
    "fused=True; a fused LAMB took 5.5 times less for the update",
    source="perfguard's own measurement: torch 2.8, two CPUs of an AMD EPYC; Fu et al. (2022), arXiv:2206.10034, §2.7",
)


def _find(evidence: Evidence) -> list[Finding]:
    optimizers: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.OPTIMIZER and total.key.module in _HAS_FUSED:
            optimizers[total.key.module].append(total)
    found = [_finding(evidence, name, totals) for name, totals in sorted(optimizers.items()) if _is_unfused(totals)]
    return [finding for finding in found if finding.share is not None and finding.share >= WORTH_TELLING]


def _is_unfused(totals: Sequence[OpTotal]) -> bool:
    names = [short(total.key.op) for total in totals]
    if any("fused" in name or any(part in name for part in _SPARSE) for name in names):
        return False
    return bool(_updates(totals))


def _updates(totals: Sequence[OpTotal]) -> Counter[str]:
    """Calls a step of ops that compute the update."""
    calls: Counter[str] = Counter()
    for total in totals:
        op = total.key.op
        if op != PYTHON_OP and not is_minor(op) and not is_copy(op) and short(op) not in _NO_UPDATE:
            calls[short(op)] += round(total.calls)
    return +calls


def _finding(evidence: Evidence, name: str, totals: Sequence[OpTotal]) -> Finding:
    updates = _updates(totals)
    frequent = sorted(updates, key=lambda op: (-updates[op], op))
    foreach = any(op.startswith("_foreach_") for op in updates)
    share = evidence.share_of(totals)
    python_s = evidence.seconds_of(total for total in totals if total.key.op == PYTHON_OP)
    return finding_on(
        evidence,
        totals,
        rule_id=ID,
        title=f"{name} updates {'by foreach ops' if foreach else 'one tensor at a time'}",
        severity=severity_by(share),
        seen=(
            f"{format_calls(math.fsum(updates.values()))} a step of {named(frequent)}",
            f"they take {format_seconds(evidence.seconds_of(totals))} a step, {format_seconds(python_s)} in Python",
        ),
        gain=_GAIN,
        trial=after_edit(evidence.subject, f"torch.optim.{name}(…, fused=True)"),
    )


RULE = Rule(
    id=ID,
    finds="optimizers that run as loops or foreach ops where torch has a fused kernel",
    find=_find,
    changes=frozenset({ChangeRule.FUSION}),
)
