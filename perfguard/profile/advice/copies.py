"""Copies of tensors: as they are, between dtypes, and into layouts of oneDNN."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_A_CHANGE, calls_of, longest_first, on_ops, on_primitives
from perfguard.profile.advice.tensors import Tensor, tensors_of
from perfguard.profile.op_counts.details import PrimitiveDetail
from perfguard.records.facts import fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal

LEAST_REORDER_SHARE = 0.05
"""Part of a step from which reorders are told. Some are the rule in training, where weights change with every step and
so are laid out again: of what oneDNN takes of a step, 5 % (RetinaNet, LSTM) to 16 % (ResNet18) are reorders in Fu et
al., "Deep Learning Models on CPUs" (2022), arXiv:2206.10034, Fig. 2."""

_COPY = "aten::copy_"
"""What every copy ends in."""


def copies(evidence: Evidence) -> list[Finding]:
    """Copies within one dtype: `.contiguous()`, `.clone()`, `reshape` where no view is possible."""
    return _copies(evidence, "copies", within_one_dtype=True)


def casts(evidence: Evidence) -> list[Finding]:
    """Copies between dtypes, as autocast makes them for every weight in every step."""
    return _copies(evidence, "casts", within_one_dtype=False)


def reorders(evidence: Evidence) -> list[Finding]:
    """Tensors that oneDNN copies into another layout before or after a primitive."""
    found = [primitive for primitive in evidence.primitives if primitive.primitive == "reorder"]
    seen = fact(
        "seen.copies",
        kind="reorders",
        calls=calls_of(found),
        time_s=sum(reorder.time_s for reorder in found),
        between=longest_first((_reordered(reorder), reorder.time_s) for reorder in found),
        written_bytes=sum(_detail(reorder).written_bytes * reorder.calls for reorder in found),
    )
    return on_primitives(evidence, found, "reorders", seen, least_share=LEAST_REORDER_SHARE)


def _copies(evidence: Evidence, kind: str, *, within_one_dtype: bool) -> list[Finding]:
    found: list[OpTotal] = []
    between: list[tuple[str, float]] = []
    for total in evidence.totals:
        tensors = tensors_of(total.key)
        if total.key.op != _COPY or len(tensors) < 2 or not (tensors[0].dtype and tensors[1].dtype):
            continue
        target, source = tensors[:2]
        if (source.dtype == target.dtype) is within_one_dtype:
            found.append(total)
            between.append((_copied(source, target), evidence.seconds_of((total,))))
    time_s = evidence.seconds_of(found)
    seen = fact("seen.copies", kind=kind, calls=calls_of(found), time_s=time_s, between=longest_first(between)[:1])
    return on_ops(evidence, found, kind, seen, least_share=WORTH_A_CHANGE)


def _copied(source: Tensor, target: Tensor) -> str:
    """`channels_last → contiguous (f32)`, or `f32 → bf16`."""
    if source.dtype != target.dtype:
        return f"{source.dtype} → {target.dtype}"
    return f"{source.layout or '?'} → {target.layout or '?'} ({target.dtype})"


def _reordered(reorder: PrimitiveTotal) -> str:
    """`abcd → aBcd16b (f32)`."""
    detail = _detail(reorder)
    return f"{detail.tags or '?'} ({'/'.join(dict.fromkeys(detail.dtypes.split())) or '?'})"


def _detail(reorder: PrimitiveTotal) -> PrimitiveDetail:
    return PrimitiveDetail(memory=reorder.memory, problem=reorder.problem, attributes="")
