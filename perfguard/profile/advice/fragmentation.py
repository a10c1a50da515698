"""Steps of many tiny ops: what they compute takes less than calling them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule, finding_on, severity_by
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.op_counts.census import pattern_of
from perfguard.records.steps.findings import Finding, Gain
from perfguard.records.steps.ops import PYTHON_OP, OpTotal, StepPhase
from perfguard.units import format_number, format_seconds, format_share

ID = "fragmented-trace"
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
_GAIN = Gain(
    text="a focal loss took 27.4 ms op by op, 9.5 ms with torch.compile and 3.7 ms as one C++ kernel; an explicit "
    "kernel for it, forward and backward, was twice as fast in bf16",
    source="perfguard's own measurement: torch 2.13, one CPU of an AMD EPYC; Fu et al. (2022), arXiv:2206.10034",
)


def _find(evidence: Evidence) -> list[Finding]:
    tiny = [
        total
        for total in evidence.totals
        if total.key.op != PYTHON_OP and total.calls > 0 and evidence.per_call_s(total) < TINY_CALL_S
    ]
    python = _python_of_calls(evidence)
    calls = math.fsum(total.calls for total in tiny)
    share = evidence.share_of([*tiny, *python])
    if share is None or calls < LEAST_CALLS or share < LEAST_SHARE:
        return []
    shares = f"{format_share(evidence.share_of(tiny))} of it, Python {format_share(evidence.share_of(python))}"
    profiler = "" if evidence.event_s else ", with the profiler's own cost"
    return [
        finding_on(
            evidence,
            [*tiny, *python],
            rule_id=ID,
            title="the step is made of tiny ops",
            severity=severity_by(share),
            seen=(
                f"{format_number(calls)} calls a step below {format_seconds(TINY_CALL_S)} take {shares}{profiler}",
                f"most of it {_largest_places(evidence, [*tiny, *python])}",
            ),
            gain=_GAIN,
            trial=after_edit(
                evidence.subject,
                "model.compile(), or torch.compile around the function with most of the tiny ops; a custom op for "
                "what stays",
            ),
        )
    ]


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


def _largest_places(evidence: Evidence, totals: Sequence[OpTotal]) -> str:
    """`in loss of CrossEntropyLoss (12 %), in forward of Bert.layers.* (8 %)`."""
    places: dict[tuple[StepPhase, str], list[OpTotal]] = defaultdict(list)
    for total in totals:
        places[total.key.phase, pattern_of(total.key.module)].append(total)
    ranked = sorted(places, key=lambda place: (-evidence.seconds_of(places[place]), place))
    told = []
    for phase, module in ranked[:_PLACES]:
        share = format_share(evidence.share_of(places[phase, module]))
        told.append(f"in {phase.value}{f' of {module}' if module else ''} ({share})")
    return ", ".join(told)


RULE = Rule(id=ID, finds="steps whose time is in tiny ops and in Python", find=_find)
