"""Optimizers that update one tensor at a time although torch has one kernel for all of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING, on_ops
from perfguard.profile.changes.op_names import is_copy, is_minor, short
from perfguard.records.facts import fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, StepPhase

_HAS_FUSED = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})
"""Optimizers with fused kernels for CPUs. Source: torch/optim; on CPUs torch takes neither these nor foreach
unasked."""
_NO_UPDATE = frozenset({"zero_", "zeros_like", "fill_"})
_NEVER_FUSED = ("fused", "sparse", "coalesce", "_indices", "_values")
"""Parts of names of ops that are fused, or on sparse gradients, which the fused kernels refuse."""


def unfused_optimizers(evidence: Evidence) -> list[Finding]:
    """One finding for each optimizer that runs as a loop or as foreach ops and has a fused kernel."""
    optimizers: dict[str, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.phase is StepPhase.OPTIMIZER and total.key.module in _HAS_FUSED:
            optimizers[total.key.module].append(total)
    found = []
    for name, totals in sorted(optimizers.items()):
        updates = _updates(totals)
        if not updates or any(part in total.key.op for total in totals for part in _NEVER_FUSED):
            continue
        seen = fact(
            "seen.calls",
            calls=updates.total(),
            ops=tuple(op for op, _ in sorted(updates.items(), key=lambda item: (-item[1], item[0]))),
            time_s=evidence.seconds_of(totals),
            python_s=evidence.seconds_of(total for total in totals if total.key.op == PYTHON_OP) or None,
        )
        found += on_ops(
            evidence,
            totals,
            "unfused_optimizer",
            seen,
            least_share=WORTH_TELLING,
            optimizer=name,
            is_foreach=any(op.startswith("_foreach_") for op in updates),
        )
    return found


def _updates(totals: Iterable[OpTotal]) -> Counter[str]:
    """Calls a step of ops that compute the update."""
    calls: Counter[str] = Counter()
    for total in totals:
        op = total.key.op
        if op != PYTHON_OP and not is_minor(op) and not is_copy(op) and short(op) not in _NO_UPDATE:
            calls[short(op)] += round(total.calls)
    return +calls
