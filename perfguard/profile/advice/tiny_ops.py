"""Steps of many tiny ops: what they compute takes less than calling them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import calls_of, on_ops
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.records.facts import Fact, fact
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, StepPhase

TINY_CALL_S = 10e-6
"""Seconds of an op's own time below which calling it is most of it: dispatch, autograd and Python take some
microseconds for each op."""
MOST_PYTHON_S = 100e-6
"""Seconds of Python for each op of a phase that calling it can explain, modules and autograd's Python included."""
LEAST_CALLS = 200
"""Tiny calls a step from which it is fragmented: at some microseconds each, they are a millisecond that fusing could
save."""
LEAST_SHARE = 0.3
"""Part of a step in tiny ops and in Python from which it is fragmented. It is what fusing could save at most; below a
third, there is more to gain in the ops that compute. A judgement, not a measurement."""

_PLACES = 3


def fragmented_trace(evidence: Evidence) -> list[Finding]:
    """Steps whose time is in tiny ops and in Python."""
    tiny = [
        total
        for total in evidence.totals
        if total.key.op != PYTHON_OP and total.calls > 0 and evidence.per_call_s(total) < TINY_CALL_S
    ]
    if calls_of(tiny) < LEAST_CALLS:
        return []
    python = _python_of_calls(evidence)
    seen = fact(
        "seen.tiny_calls",
        calls=calls_of(tiny),
        below_s=TINY_CALL_S,
        tiny_share=evidence.share_of(tiny),
        python_share=evidence.share_of(python),
        has_profiler_cost=not evidence.event_s,
    )
    both = [*tiny, *python]
    return on_ops(evidence, both, "fragmented_trace", seen, *_largest_places(evidence, both), least_share=LEAST_SHARE)


def _python_of_calls(evidence: Evidence) -> list[OpTotal]:
    """Time in no op, of the phases whose calls can explain it: elsewhere Python waits, reads or computes by itself."""
    calls: dict[StepPhase, float] = defaultdict(float)
    python: dict[StepPhase, list[OpTotal]] = defaultdict(list)
    for total in evidence.totals:
        if total.key.op == PYTHON_OP:
            python[total.key.phase].append(total)
        else:
            calls[total.key.phase] += total.calls
    return [
        total
        for phase, totals in python.items()
        if evidence.seconds_of(totals) <= MOST_PYTHON_S * calls[phase]
        for total in totals
    ]


def _largest_places(evidence: Evidence, totals: Sequence[OpTotal]) -> list[Fact]:
    places: dict[tuple[StepPhase, str], list[OpTotal]] = defaultdict(list)
    for total in totals:
        places[total.key.phase, pattern_of(total.key.module)].append(total)
    ranked = sorted(places, key=lambda place: (-evidence.seconds_of(places[place]), place))
    return [
        fact("seen.place", phase=phase.value, module=module, part_share=evidence.share_of(places[phase, module]))
        for phase, module in ranked[:_PLACES]
    ]
