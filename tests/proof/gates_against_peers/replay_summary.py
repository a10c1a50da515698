"""What the replayed gates add up to, rule by rule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.proof.gates_against_peers.intervals import Rate, effect_at_power, rate
from tests.proof.gates_against_peers.journal import Row
from tests.proof.gates_against_peers.rules import PeerRule
from tests.proof.gates_against_peers.stream import Design

TUNED_TO = 0.01
"""Share of red gates on identical arms that a peer's threshold is tuned to."""
TRUSTED = 0.05
"""A rule that is red on identical arms more often than this is not trusted when the smallest effects are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSummary:
    """One rule on one design."""

    name: str
    """The rule."""
    design: str
    """`rounds`, `sequential`, `interleaved` or, for perfguard, `paired`."""
    is_own_design: bool
    """Whether the tool measures in this order by itself."""
    origin: str
    """Own code or re-implemented."""
    threshold: float | None
    """Smallest ratio that it flags; None for perfguard."""
    false_alarms: Rate
    """Red gates on identical arms; windows that share no block."""
    resampled: Rate
    """The same of resampled windows: independent draws from what this recording holds, and from nothing else."""
    power: dict[float, float]
    """Share of gates that flag the slowed case, by effect; all windows."""
    effect_80: float | None
    """Smallest effect found with 80 % power; None where even the largest was found less often."""
    right_culprit: float | None
    """Of the gates that flag the slowed case at 5 %: share that flag no other."""
    inconclusive: float | None = None
    """Share of gates on identical arms that say they cannot tell."""
    seconds: float | None = None
    """Median seconds to the answer on identical arms."""


def summarize(rows: Sequence[Row], rules: Sequence[PeerRule]) -> tuple[RuleSummary, ...]:
    """perfguard first, then each rule on the design it measures in and on the other one, then tuned."""
    if not rows:
        return ()
    peers = [peer(rows, rule, design) for rule in rules for design in rule.designs]
    tunable = [rule for rule in rules if rule.name not in ("asv continuous -f 1.02", "pytest-benchmark min:5%")]
    tuned = [peer(rows, rule, design, tuned=True) for rule in tunable for design in rule.designs]
    return (perfguard(rows), *peers, *tuned)


def perfguard(rows: Sequence[Row]) -> RuleSummary:
    """perfguard's own rule, after confirmation."""
    identical = {scheme: [r["perfguard"]["0"] for r in rows if r["scheme"] == scheme] for scheme in _SCHEMES}
    everywhere = [entry for entries in identical.values() for entry in entries]
    power = {
        effect: statistics.fmean(row["case"] in row["perfguard"][f"{effect:g}"]["red"] for row in rows)
        for effect in effects_of(rows)
    }
    at_five = [(row["case"], row["perfguard"]["0.05"]["red"]) for row in rows]
    return RuleSummary(
        name="perfguard",
        design="paired",
        is_own_design=True,
        origin="own code",
        threshold=None,
        false_alarms=_red_of([bool(e["red"]) for e in identical["separate"]]),
        resampled=_red_of([bool(e["red"]) for e in identical["resampled"]]),
        power=power,
        effect_80=effect_at_power(list(power), list(power.values())),
        right_culprit=_right([(case, tuple(red)) for case, red in at_five]),
        inconclusive=statistics.fmean(entry["outcome"] in ("inconclusive", "host-unstable") for entry in everywhere),
        seconds=statistics.median(entry["seconds"] for entry in everywhere),
    )


def peer(rows: Sequence[Row], rule: PeerRule, design: Design, *, tuned: bool = False) -> RuleSummary:
    """A peer's rule, as it comes or with the threshold that makes 1 % of these very gates red: a present to it."""
    name, order = rule.score.__name__, design.value
    highest = [_highest(row["scores"][name][order]["identical"].values()) for row in rows]
    threshold = tuned_threshold(highest) if tuned else rule.threshold
    red = {
        scheme: [h > threshold for h, row in zip(highest, rows, strict=True) if row["scheme"] == scheme]
        for scheme in _SCHEMES
    }
    power = {
        effect: statistics.fmean(_above(row["scores"][name][order]["slower"][f"{effect:g}"], threshold) for row in rows)
        for effect in effects_of(rows)
    }
    return RuleSummary(
        name=f"{rule.name}, tuned" if tuned else rule.name,
        design=order,
        is_own_design=design is rule.design,
        origin=rule.origin,
        threshold=threshold,
        false_alarms=_red_of(red["separate"]),
        resampled=_red_of(red["resampled"]),
        power=power,
        effect_80=effect_at_power(list(power), list(power.values())),
        right_culprit=_right([(row["case"], _flagged(row, name, order, threshold)) for row in rows]),
    )


def tuned_threshold(highest: Sequence[float]) -> float:
    """The smallest threshold, not below 0, that leaves at most 1 % of the gates red.

    Args:
        highest: Highest score of each gate on identical arms.
    """
    allowed = math.floor(TUNED_TO * len(highest))
    return max(0.0, sorted(highest, reverse=True)[allowed])


def best_peer(summaries: Sequence[RuleSummary], *, tuned: bool, own_design: bool) -> RuleSummary | None:
    """The peer that finds the smallest effect with 80 % power, among those that can be trusted with identical arms."""
    chosen = [
        s
        for s in summaries
        if s.name != "perfguard"
        and s.name.endswith(", tuned") is tuned
        and s.is_own_design is own_design
        and s.effect_80 is not None
        and _all(s).value <= (TUNED_TO if tuned else TRUSTED)
    ]
    return min(chosen, key=lambda s: s.effect_80 or math.inf, default=None)


def effects_of(rows: Sequence[Row]) -> tuple[float, ...]:
    """The effects that were put in, growing."""
    return tuple(sorted(float(text) for text in rows[0]["perfguard"] if text != "0"))


_SCHEMES = ("separate", "resampled")


def _all(summary: RuleSummary) -> Rate:
    both = (summary.false_alarms, summary.resampled)
    return rate(sum(r.count for r in both), sum(r.trials for r in both))


def _red_of(gates: Sequence[bool]) -> Rate:
    return rate(sum(gates), len(gates))


def _highest(scores: object) -> float:
    return max((score for score in scores if score is not None), default=-math.inf)


def _above(score: float | None, threshold: float) -> bool:
    return score is not None and score > threshold


def _flagged(row: Row, name: str, design: str, threshold: float) -> tuple[str, ...]:
    """Cases flagged where one of them is 5 % slower."""
    scores = {**row["scores"][name][design]["identical"], row["case"]: row["scores"][name][design]["slower"]["0.05"]}
    return tuple(case for case, score in scores.items() if _above(score, threshold))


def _right(gates: Sequence[tuple[str, tuple[str, ...]]]) -> float | None:
    found = [flagged for case, flagged in gates if case in flagged]
    return statistics.fmean(len(flagged) == 1 for flagged in found) if found else None
