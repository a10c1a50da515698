"""Precision where it does not belong: doubles in a narrower step, losses that are reduced in bf16 or f16."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING, calls_of, names_of, on_ops
from perfguard.profile.advice.tensors import FLOATING, LOW_PRECISION, tensors_of
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import LIBRARY_GROUPS, Group, group_of
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpTotal, StepPhase

_DOUBLE = "f64"
_REDUCES = frozenset({Group.REDUCTION, Group.SOFTMAX, Group.LOSS})
_WRAPPERS = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax", "softmax"})


def double_precision(evidence: Evidence) -> list[Finding]:
    """f64 that slipped into a narrower step, as numpy's arrays and Python's lists bring it."""
    doubles: list[OpTotal] = []
    others: list[OpTotal] = []
    for total in evidence.totals:
        # Numbers of Python show as f64 tensors without dimensions.
        dtypes = FLOATING & {tensor.dtype for tensor in tensors_of(total.key) if tensor.shape}
        if dtypes and group_of(total.key.op) is not Group.VIEWS:
            (doubles if _DOUBLE in dtypes else others).append(total)
    if _is_meant(doubles, others):
        return []
    seen = fact("seen.calls", calls=calls_of(doubles), ops=names_of(doubles), time_s=evidence.seconds_of(doubles))
    return on_ops(evidence, doubles, "double_precision", seen, least_share=WORTH_TELLING)


def _is_meant(doubles: Sequence[OpTotal], others: Sequence[OpTotal]) -> bool:
    """Whether the step was meant to be one of doubles: most of its products are, which weights of f32 would refuse.

    Calls tell, not seconds: a slip that takes most of the step's time is the worst of them.
    """
    double_products, other_products = _products(doubles), _products(others)
    if double_products or other_products:
        return calls_of(double_products) >= calls_of(other_products)
    return calls_of(doubles) >= calls_of(others)


def _products(totals: Iterable[OpTotal]) -> list[OpTotal]:
    return [total for total in totals if group_of(total.key.op) in LIBRARY_GROUPS]


def low_precision_loss(evidence: Evidence) -> list[Finding]:
    """Losses that are reduced in bf16 or f16: cheaper by next to nothing, and wrong in the third digit."""
    reductions = [total for total in evidence.totals if _reduces(total)]
    calls_in_full: Counter[tuple[str, str]] = Counter()
    for total in reductions:
        if not _is_low(total):
            calls_in_full[total.key.module, total.key.op] += round(total.calls)
    # Autocast converts within the op that the program calls: the same op then runs once more on f32.
    reduced = [
        total for total in reductions if _is_low(total) and calls_in_full[total.key.module, total.key.op] < total.calls
    ]
    if not reduced:
        return []
    ops = tuple(sorted({f"{short(total.key.op)} ({tensors_of(total.key)[0].dtype})" for total in reduced}))
    seen = fact("seen.calls", calls=calls_of(reduced), ops=ops)
    return on_ops(evidence, reduced, "low_precision_loss", seen, severity=Severity.INFO)


def _reduces(total: OpTotal) -> bool:
    """Whether an op itself reduces a tensor of the loss: wrappers run what they call in a dtype of its own."""
    key, tensors = total.key, tensors_of(total.key)
    is_reduction = group_of(key.op) in _REDUCES and short(key.op) not in _WRAPPERS
    return key.phase is StepPhase.LOSS and is_reduction and bool(tensors) and tensors[0].elements > 1


def _is_low(total: OpTotal) -> bool:
    return tensors_of(total.key)[0].dtype in LOW_PRECISION
