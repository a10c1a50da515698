"""One effect over several machines, each of which may differ: a random-effects mean.

Between-machine variance by Paule and Mandel (1982), which makes the factor of Hartung and Knapp (2001) at most 1; their
t distribution without that factor (Röver, Knapp and Friede 2015), since two or three machines tell little of how
machines differ; whether they differ by Cochran's Q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from scipy import special

from perfguard.stats.numeric import root_between
from perfguard.stats.paired import FloatArray

_SMALLEST_ERROR = 1e-6  # Of log ratios: clocks and rounding


class PooledEffect(Struct, frozen=True, kw_only=True):
    """An effect on the log scale over machines."""

    machines: int
    log_ratio: float  # Mean over machines like these
    lower: float  # Interval of that mean
    upper: float
    between_sd: float  # Standard deviation of the machines' own effects
    p_alike: float  # Of differences as large as these between machines that do not differ


def pool_effects(log_ratios: Sequence[float], errors: Sequence[float], level: float = 0.95) -> PooledEffect:
    """The mean of effects with known standard errors, one a machine, two at least.

    Raises:
        ValueError: There are fewer than two, or not as many errors.
    """
    if len(log_ratios) < 2 or len(log_ratios) != len(errors):
        raise ValueError("an effect and its error for each of two machines or more are needed")
    effects = np.asarray(log_ratios, dtype=np.float64)
    variances = np.maximum(np.asarray(errors, dtype=np.float64), _SMALLEST_ERROR) ** 2
    freedom = len(effects) - 1
    between = _between_variance(effects, variances)
    weights = 1 / (variances + between)
    mean = _mean(effects, weights)
    half = float(special.stdtrit(freedom, 0.5 + level / 2)) / math.sqrt(float(weights.sum()))
    return PooledEffect(
        machines=len(effects),
        log_ratio=mean,
        lower=mean - half,
        upper=mean + half,
        between_sd=math.sqrt(between),
        p_alike=float(special.chdtrc(freedom, _deviance(effects, variances, 0.0))),
    )


def _mean(effects: FloatArray, weights: FloatArray) -> float:
    return float((weights * effects).sum() / weights.sum())


def _deviance(effects: FloatArray, variances: FloatArray, between: float) -> float:
    """Weighted squares around the mean; Cochran's Q without variance between machines."""
    weights = 1 / (variances + between)
    return float((weights * (effects - _mean(effects, weights)) ** 2).sum())


def _between_variance(effects: FloatArray, variances: FloatArray) -> float:
    """The variance at which the deviance is what chance alone would give; 0 where it is smaller already."""
    freedom = len(effects) - 1

    def excess(between: float) -> float:
        return _deviance(effects, variances, between) - freedom

    if excess(0.0) <= 0:
        return 0.0
    # The deviance falls with it, and is below the degrees of freedom there at the latest.
    largest = float(((effects - effects.mean()) ** 2).sum())
    return root_between(excess, 0.0, largest, within=1e-12)
