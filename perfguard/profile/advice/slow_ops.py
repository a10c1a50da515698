"""Ops that are slow by their data and not by what they are.

The time of one op cannot tell. So it is compared with that of ops of the same kind on tensors of the same kind: in the
baseline, alone with other values, or elsewhere in the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import WORTH_TELLING
from perfguard.profile.advice.tensors import Tensor, largest, tensors_of
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.facts import Fact, Value, fact
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, OpTotal

SLOWER_BY = 5.0
"""How many times slower than itself, in the baseline or alone, an op must be to be suspected: the least of the reported
cases (pytorch#23862)."""
SLOWER_THAN_PEERS_BY = 10.0
"""The same against ops elsewhere in the step. Memory that is new to the process made equal ops of one step three to
four times slower where it was first used, which must not pass for their data."""
LEAST_CALL_S = 20e-6
"""Seconds a call from which the time of an op is that of its data, and not of its dispatch."""
LEAST_PEERS = 3
"""Ops of the same kind that a suspect is compared with: the median of two is either of them."""

_FLUSHED = frozenset({"f32", "f64", "bf16"})
"""dtypes that denormals slow and flushing helps; in f16 a denormal is an ordinary f32 once it is converted
(pytorch#150007)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An op that is slow for what it is."""

    total: OpTotal
    """The op."""
    seen: Fact
    """What it was compared with."""


def suspects_of(evidence: Evidence) -> list[Suspect]:
    """Ops that matter, longest first, each with the first reason that there is."""
    ops = [total for total in evidence.totals if _may_suffer(evidence, total)]
    found: dict[OpKey, Suspect] = {}
    for find in (_slower_than_before, _slower_than_alone, _slower_than_peers):
        for suspect in find(evidence, ops):
            share = evidence.share_of((suspect.total,))
            if share is not None and share >= WORTH_TELLING:
                found.setdefault(suspect.total.key, suspect)
    return sorted(found.values(), key=lambda suspect: -suspect.total.self_s)


def _may_suffer(evidence: Evidence, total: OpTotal) -> bool:
    tensors = tensors_of(total.key)
    has_time = total.key.op != PYTHON_OP and _call_s(evidence, total) >= LEAST_CALL_S
    return has_time and bool(tensors) and tensors[0].dtype in _FLUSHED


def _slower_than_before(evidence: Evidence, ops: Sequence[OpTotal]) -> Iterable[Suspect]:
    """Significantly, though called as often and run by the same implementations as the rest of the step.

    Which library ran an op is not known of every op, but where the op counts show other implementations, slower ops are
    no wonder.
    """
    comparison = evidence.comparison
    if comparison is None or any(change.rule == "implementation" for change in comparison.op_count_changes):
        return
    slower = {
        delta.key: delta.candidate_s / delta.baseline_s
        for delta in comparison.deltas
        if delta.change is ChangeClass.SLOWER and not delta.detail and delta.baseline_s > 0
    }
    for total in ops:
        ratio = slower.get(total.key, 0.0)
        if ratio >= SLOWER_BY:
            yield _suspect(total, times_baseline=ratio)


def _slower_than_alone(evidence: Evidence, ops: Sequence[OpTotal]) -> Iterable[Suspect]:
    for total in ops:
        here_s, alone_s = _call_s(evidence, total), evidence.replayed_s.get(total.key, 0.0)
        if 0 < SLOWER_BY * alone_s <= here_s:
            yield _suspect(total, call_s=here_s, alone_s=alone_s)


def _slower_than_peers(evidence: Evidence, ops: Sequence[OpTotal]) -> Iterable[Suspect]:
    """Only in the fastest of several steps: a mean holds bursts of neighbours, which come in ops of any kind."""
    peers: dict[Hashable, list[OpTotal]] = defaultdict(list)
    for total in ops if evidence.shortest_call_s else ():
        peers[_kind(total.key)].append(total)
    for kin in peers.values():
        for total in kin:
            like = [other for other in kin if other is not total and _is_like(other.key, total.key)]
            ratio = _per_element_s(evidence, total) / _usual_s(evidence, like) if len(like) >= LEAST_PEERS else 0.0
            if ratio >= SLOWER_THAN_PEERS_BY:
                yield _suspect(total, times_peers=ratio, peers=len(like))


def _kind(key: OpKey) -> Hashable:
    """What ops must have in common to take as long for each element: all but, for element-wise ones, their sizes."""
    if group_of(key.op) is Group.ELEMENT_WISE:
        return key.op, key.dtypes, key.layouts, tuple(map(_broadcast, tensors_of(key)))
    return key.op, key.dtypes, key.layouts, key.shapes


def _broadcast(tensor: Tensor) -> tuple[bool, ...]:
    return tuple(size == 1 for size in tensor.shape)


def _is_like(one: OpKey, other: OpKey) -> bool:
    """Whether two ops are of a size, so that their tensors lie in the same caches."""
    return largest(one) <= 2 * largest(other) and largest(other) <= 2 * largest(one)


def _usual_s(evidence: Evidence, totals: Sequence[OpTotal]) -> float:
    return median(_per_element_s(evidence, total) for total in totals)


def _per_element_s(evidence: Evidence, total: OpTotal) -> float:
    return _call_s(evidence, total) / max(1, largest(total.key))


def _call_s(evidence: Evidence, total: OpTotal) -> float:
    """Seconds of one call in the fastest step where that is known, else on average."""
    return evidence.shortest_call_s.get(total.key, evidence.per_call_s(total))


def _suspect(total: OpTotal, **compared: Value) -> Suspect:
    key = total.key
    values = {"shapes": key.shapes, "module": key.module, **compared}
    return Suspect(total=total, seen=fact("seen.slow_op", values, op=short(key.op)))
