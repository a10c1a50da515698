"""Many small ops where few would do: fragmented steps, optimizers that update one tensor at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.hints import WORTH_TELLING, Hint, calls_of
from perfguard.profile.changes.op_names import is_copy, is_minor, short
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.records.facts import fact
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
_HAS_FUSED = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})
"""Optimizers with fused kernels for CPUs. Source: torch/optim; on CPUs torch takes neither these nor foreach
unasked."""
_NO_UPDATE = frozenset({"zero_", "zeros_like", "fill_"})
_NEVER_FUSED = ("fused", "sparse", "coalesce", "_indices", "_values")
"""Parts of names of ops that are fused, or on sparse gradients, which the fused kernels refuse."""


def fragmented_trace(evidence: Evidence) -> Iterator[Hint]:
    """Steps whose time is in tiny ops and in Python."""
    ops = [total for total in evidence.totals if total.key.op != PYTHON_OP]
    tiny = [total for total in ops if total.calls > 0 and evidence.call_s(total) < TINY_CALL_S]
    if calls_of(tiny) < LEAST_CALLS:
        return
    python = _python_of_calls(evidence, ops)
    seen = fact(
        "seen.tiny_calls",
        calls=calls_of(tiny),
        below_s=TINY_CALL_S,
        tiny_share=evidence.share_of(tiny),
        python_share=evidence.share_of(python),
        has_profiler_cost=not evidence.event_s,
    )
    both = [*tiny, *python]
    places: dict[tuple[StepPhase, str], list[OpTotal]] = defaultdict(list)
    for total in both:
        places[total.key.phase, pattern_of(total.key.module)].append(total)
    largest = sorted(places, key=lambda place: (-evidence.seconds_of(places[place]), place))[:_PLACES]
    at_places = [
        fact("seen.place", phase=phase.value, module=module, part_share=evidence.share_of(places[phase, module]))
        for phase, module in largest
    ]
    yield Hint("fragmented_trace", [seen, *at_places], ops=both, least_share=LEAST_SHARE)


def _python_of_calls(evidence: Evidence, ops: Iterable[OpTotal]) -> list[OpTotal]:
    """Time in no op, of the phases whose calls can explain it: elsewhere Python waits, reads or computes by itself."""
    found: list[OpTotal] = []
    for phase in StepPhase:
        python = [t for t in evidence.totals if t.key.op == PYTHON_OP and t.key.phase is phase]
        if evidence.seconds_of(python) <= MOST_PYTHON_S * calls_of(total for total in ops if total.key.phase is phase):
            found += python
    return found


def unfused_optimizers(evidence: Evidence) -> Iterator[Hint]:
    """One for each optimizer that runs as a loop or as foreach ops and has a fused kernel."""
    in_phase = [total for total in evidence.totals if total.key.phase is StepPhase.OPTIMIZER]
    for name in sorted(_HAS_FUSED):
        totals = [total for total in in_phase if total.key.module == name]
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
        is_foreach = any(op.startswith("_foreach_") for op in updates)
        yield Hint(
            "unfused_optimizer",
            [seen],
            ops=totals,
            least_share=WORTH_TELLING,
            values={"optimizer": name, "is_foreach": is_foreach},
        )


def _updates(totals: Iterable[OpTotal]) -> Counter[str]:
    """Calls a step of ops that compute the update."""
    calls: Counter[str] = Counter()
    for total in totals:
        op = total.key.op
        if op != PYTHON_OP and not is_minor(op) and not is_copy(op) and short(op) not in _NO_UPDATE:
            calls[short(op)] += round(total.calls)
    return +calls
