"""Rates and effects with what is known of them, and the effect that a tool finds with a given power."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A count out of trials, with its exact interval."""

    count: int
    """How often it happened."""
    trials: int
    """Out of how many independent trials."""
    lower: float
    """Lower end of the two-sided 95 % interval."""
    upper: float
    """Upper end of it; with a count of 0, of the one-sided interval (3 / trials, roughly)."""

    @property
    def value(self) -> float:
        """Share; nan without trials."""
        return self.count / self.trials if self.trials else math.nan


def rate(count: int, trials: int, *, level: float = 0.95) -> Rate:
    """The exact interval of a binomial share.

    With a count at either end nothing can lie beyond it, so the other end takes the whole error: 0 of 299 says "at most
    1 %" at 95 %.

    Source: Clopper & Pearson (1934), doi:10.1093/biomet/26.4.404.

    Raises:
        ValueError: The count is negative or above the trials.
    """
    if not 0 <= count <= trials:
        raise ValueError(f"{count} of {trials} is no share")
    if trials == 0:
        return Rate(count=0, trials=0, lower=0.0, upper=1.0)
    tail = (1 - level) if count in (0, trials) else (1 - level) / 2
    lower = 0.0 if count == 0 else float(stats.beta.ppf(tail, count, trials - count + 1))
    upper = 1.0 if count == trials else float(stats.beta.ppf(1 - tail, count + 1, trials - count))
    return Rate(count=count, trials=trials, lower=lower, upper=upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How much longer something takes."""

    ratio: float
    """0.02 for 2 % longer."""
    lower: float
    """Lower end of the two-sided 95 % interval; nan where there is none."""
    upper: float
    """Upper end of it."""

    def __str__(self) -> str:
        if math.isnan(self.lower):
            return f"{self.ratio:+.1%}"
        return f"{self.ratio:+.1%} [{100 * self.lower:+.1f}, {100 * self.upper:+.1f}]"


def mean_effect(ratios: Sequence[float]) -> Effect:
    """The geometric mean of independent measurements of one effect, with Student's interval.

    Args:
        ratios: What each says, as 0.02 for 2 % longer.

    Raises:
        ValueError: There is none.
    """
    if not ratios:
        raise ValueError("an effect needs one measurement at least")
    logs = [math.log1p(ratio) for ratio in ratios]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Effect(ratio=math.expm1(mean), lower=math.nan, upper=math.nan)
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Effect(ratio=math.expm1(mean), lower=math.expm1(mean - half), upper=math.expm1(mean + half))


def effect_at_power(effects: Sequence[float], powers: Sequence[float], wanted: float = 0.8) -> float | None:
    """The smallest effect found with the wanted power, interpolated between those that were tried.

    Args:
        effects: Tried effects, growing.
        powers: Share found of each.
        wanted: The power.

    Returns:
        None where even the largest effect was found less often. Effects after which the power falls below the wanted
        one again do not count: a rule that happens to be red at a small effect has not found it.
    """
    reached = None
    for index in range(len(effects) - 1, -1, -1):
        if powers[index] < wanted:
            break
        reached = index
    if reached is None:
        return None
    if reached == 0:
        return effects[0]
    low, high = powers[reached - 1], powers[reached]
    share = (wanted - low) / (high - low)
    return effects[reached - 1] + share * (effects[reached] - effects[reached - 1])
