"""Denormal values, which take a CPU many times as long as others: counted where the process could, else suspected.

Suspects are ops that are slow by their data and not by what they are. The time of one op does not show that, so it is
compared with that of ops of the same kind on tensors of the same kind: in the baseline, alone with other values, or
elsewhere in the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from statistics import median

from perfguard.profile.advice.evidence import Evidence, largest, tensors_of
from perfguard.profile.advice.hints import WORTH_TELLING, Hint
from perfguard.profile.changes.op_names import short
from perfguard.profile.trace.op_groups import Group, group_of
from perfguard.records.facts import Severity, Value, fact
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, OpTotal

LEAST_RATIO = 0.001
"""Share of denormals in a kind of tensors from which they are reported without a slow op: one denormal makes a vector
of 16 f32 values slow, so 0.1 % of values slow 1.6 % of vectors."""
SLOWER_BY = 5.0
"""How many times slower than itself, in the baseline or alone, an op must be to be suspected: the least of the reported
cases (pytorch#23862)."""
SLOWER_THAN_PEERS_BY = 10.0
"""The same against ops elsewhere in the step. Memory that is new to the process made equal ops of one step three to
four times slower where it was first used, which must not pass for their data."""
LEAST_CALL_S = 20e-6  # Seconds a call from which the time of an op is that of its data, and not of its dispatch
LEAST_PEERS = 3  # Ops of the same kind that a suspect is compared with: the median of two is either of them

_FLUSHED = frozenset({"f32", "f64", "bf16"})
"""dtypes that denormals slow and flushing helps; in f16 a denormal is an ordinary f32 once it is converted
(pytorch#150007)."""
_SHOWN_SUSPECTS = 3

_Suspect = tuple[OpTotal, dict[str, Value]]  # An op that is slow for what it is, and what it was compared with


def denormals(evidence: Evidence) -> Iterator[Hint]:
    """At most one: what was counted, and ops that are slow for what they are."""
    program = evidence.program
    flushes = program.flushes_denormals if program is not None else evidence.facts.flushes_denormals
    if flushes:
        return
    counts = program.denormals if program is not None else ()
    many = [count for count in counts if count.denormals and count.denormals >= LEAST_RATIO * count.values]
    suspects = _suspects(evidence)
    if not (many or suspects):
        return
    seen = [
        fact(
            "seen.denormals",
            denormals=count.denormals,
            counted=count.values,
            group=count.group,
            worst=count.worst or None,
        )
        for count in many or counts
    ]
    for total, compared in suspects[:_SHOWN_SUSPECTS]:
        values = {"shapes": total.key.shapes, "module": total.key.module, **compared}
        seen.append(fact("seen.slow_op", values, op=short(total.key.op)))
    yield Hint(
        "denormals" if many else "suspected_denormals",
        seen if many else [*seen, fact("seen.no_proof")],
        ops=[total for total, _ in suspects],
        severity=Severity.NOTABLE if many else Severity.INFO,
        values={"is_slow": bool(suspects)},
    )


def _suspects(evidence: Evidence) -> list[_Suspect]:
    """Ops that matter, longest first, each with the first reason that there is."""
    ops = [total for total in evidence.totals if _may_suffer(evidence, total)]
    found: dict[OpKey, _Suspect] = {}
    for find in (_slower_than_before, _slower_than_peers):
        for total, compared in find(evidence, ops):
            share = evidence.share_of((total,))
            if share is not None and share >= WORTH_TELLING:
                found.setdefault(total.key, (total, compared))
    return sorted(found.values(), key=lambda suspect: -suspect[0].self_s)


def _may_suffer(evidence: Evidence, total: OpTotal) -> bool:
    tensors = tensors_of(total.key)
    has_time = total.key.op != PYTHON_OP and evidence.call_s(total) >= LEAST_CALL_S
    return has_time and bool(tensors) and tensors[0].dtype in _FLUSHED


def _slower_than_before(evidence: Evidence, ops: Sequence[OpTotal]) -> Iterator[_Suspect]:
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
            yield total, {"times_baseline": ratio}


def _slower_than_peers(evidence: Evidence, ops: Sequence[OpTotal]) -> Iterator[_Suspect]:
    """Only in the fastest of several steps: a mean holds bursts of neighbours, which come in ops of any kind."""
    peers: dict[Hashable, list[OpTotal]] = defaultdict(list)
    for total in ops if evidence.shortest_call_s else ():
        peers[_kind(total.key)].append(total)
    for kin in peers.values():
        for total in kin:
            like = [other for other in kin if other is not total and _is_like(other.key, total.key)]
            if len(like) < LEAST_PEERS:
                continue
            ratio = _per_element_s(evidence, total) / median(_per_element_s(evidence, other) for other in like)
            if ratio >= SLOWER_THAN_PEERS_BY:
                yield total, {"times_peers": ratio, "peers": len(like)}


def _kind(key: OpKey) -> Hashable:
    """What ops must have in common to take as long for each element: all but, for element-wise ones, their sizes."""
    if group_of(key.op) is Group.ELEMENT_WISE:
        broadcast = tuple(tuple(size == 1 for size in tensor.shape) for tensor in tensors_of(key))
        return key.op, key.dtypes, key.layouts, broadcast
    return key.op, key.dtypes, key.layouts, key.shapes


def _is_like(one: OpKey, other: OpKey) -> bool:
    """Whether two ops are of a size, so that their tensors lie in the same caches."""
    return largest(one) <= 2 * largest(other) and largest(other) <= 2 * largest(one)


def _per_element_s(evidence: Evidence, total: OpTotal) -> float:
    return evidence.call_s(total) / max(1, largest(total.key))
