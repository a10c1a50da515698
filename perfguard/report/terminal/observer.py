"""What watching costs, in words."""

from __future__ import annotations

import math

from perfguard.records.estimate import Estimate
from perfguard.records.observer import ObserverEffect
from perfguard.units import format_count, format_effect, format_ratio


def observer_lines(effect: ObserverEffect) -> list[str]:
    """What a reader does to the times, the whole first, then each case."""
    width = max((len(case.case_id) for case in effect.cases), default=0)
    cpu = "" if effect.reader_cpu_ratio is None else f"; it used {format_ratio(effect.reader_cpu_ratio)} of one CPU"
    pairs = format_count(effect.pairs, "pair")
    return [
        f"effect of `{effect.reader}`, {pairs} of rounds with and without it: {_interval(effect.overall)}{cpu}",
        *(f"  {case.case_id:<{width}}  {_interval(case.estimate)}" for case in effect.cases),
        _conclusion(effect.overall),
    ]


def _interval(estimate: Estimate) -> str:
    interval = estimate.interval
    return f"{format_effect(estimate.log_ratio)} [{format_effect(interval.lower)}, {format_effect(interval.upper)}]"


def _conclusion(estimate: Estimate) -> str:
    lower, upper = estimate.interval.lower, estimate.interval.upper
    if lower > 0:
        return "watching slows what is measured here: look from another machine (--host), or once the run has ended"
    if upper < 0:
        return "rounds with the reader were faster, which it cannot cause: the machine changed; measure more pairs"
    return f"no effect was seen; one beyond {format_ratio(math.expm1(max(-lower, upper)))} would have been"
