"""What repeated A/A gates say of a machine: false alarms, block SDs, and whether its blocks are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats

from perfguard.records.estimate import Interval
from perfguard.stats.paired import estimate_paired

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""Level of every bound and interval that a calibration states."""

PERMUTATIONS = 999
"""Random orders that make the null band of an autocorrelation."""

_SEED = 20_250_101


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledSpread:
    """A standard deviation from several gates, each with a level of its own."""

    sd: float
    """Pooled SD of the block log-ratios, as `Estimate.block_sd` has it; nan when no gate has two blocks."""
    interval: Interval
    """For the SD; infinite when it is unknown."""
    degrees_of_freedom: float
    """Of the pooled variance, before kurtosis takes its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocorrelation:
    """Lag-1 autocorrelation of block values, and what chance alone gives."""

    value: float
    """Pooled over the gates, in (-1, 1)."""
    band: Interval
    """Where it falls if the order of the blocks means nothing."""


def upper_bound(count: int, trials: int, level: float = CONFIDENCE) -> float:
    """Exact upper bound for a rate of which `count` of `trials` were seen.

    Args:
        count: Events, 0 to `trials`.
        trials: Independent trials; 0 gives the bound 1.
        level: One-sided confidence.

    Raises:
        ValueError: `count` is negative or above `trials`.

    Source: Clopper & Pearson (1934), doi:10.1093/biomet/26.4.404. 0 of 35 gives 8.2 %, 0 of 299 and 1 of 473 give 1 %.
    """
    if not 0 <= count <= trials:
        raise ValueError(f"{count} events in {trials} trials")
    return 1.0 if count == trials else float(stats.beta.ppf(level, count + 1, trials - count))


def pooled_spread(
    gates: Sequence[Sequence[float]],
    level: float = CONFIDENCE,
    variances: Sequence[Sequence[float] | None] | None = None,
) -> PooledSpread:
    """SD of the block log-ratios over several gates, each with its own mean.

    Args:
        gates: Block log-ratios of each gate, shape `(gates, blocks)`, ragged. Gates of under two blocks are left out.
        level: Of the two-sided interval.
        variances: Of the blocks, as `estimate_paired` takes them, for each gate; then the SD is the one that a plain
            mean would need for the precision that weighting gives.

    Source: the pooled variance with its chi-squared interval. Heavy tails widen it: a sample variance varies by
        2/df + kurtosis/n (relative, squared), so df is divided by 1 + kurtosis/2; Bonett (2006),
        doi:10.1016/j.csda.2004.10.003, for the idea. Negative estimates of the kurtosis count as 0.
    """
    own = variances or [None] * len(gates)
    used = [np.asarray(gate, dtype=np.float64) for gate in gates if len(gate) > 1]
    estimates = [estimate_paired(gate, level, known) for gate, known in zip(gates, own, strict=True) if len(gate) > 1]
    degrees = sum(e.degrees_of_freedom for e in estimates)
    if not estimates:
        return PooledSpread(
            sd=math.nan, interval=Interval(lower=0.0, upper=math.inf, level=level), degrees_of_freedom=0
        )
    variance = sum(e.degrees_of_freedom * e.block_sd**2 for e in estimates) / degrees
    effective = degrees / (1 + _excess_kurtosis(used) / 2)
    tail = (1 - level) / 2
    low, high = (float(stats.chi2.ppf(q, effective)) for q in (tail, 1 - tail))
    return PooledSpread(
        sd=math.sqrt(variance),
        interval=Interval(
            lower=math.sqrt(variance * effective / high), upper=math.sqrt(variance * effective / low), level=level
        ),
        degrees_of_freedom=degrees,
    )


def _excess_kurtosis(gates: Sequence[FloatArray]) -> float:
    residuals = np.concatenate([(g - g.mean()) * math.sqrt(g.size / (g.size - 1)) for g in gates])
    variance = float(np.mean(residuals**2))
    return max(0.0, float(np.mean(residuals**4)) / variance**2 - 3) if variance > 0 else 0.0


def sample_variance(log_ratios: Sequence[float], trim: float) -> float:
    """Variance of one sample, as far as a block's trimmed mean feels it.

    Args:
        log_ratios: Paired sample log-ratios of one block, shape `(samples,)`.
        trim: Share cut at each end, as in the block's own value.

    Returns:
        Samples times the squared standard error of their trimmed mean; the plain variance where nothing is cut. nan for
        under two samples.

    Source: Yuen (1974), doi:10.1093/biomet/61.1.165.
    """
    values = np.sort(np.asarray(log_ratios, dtype=np.float64))
    samples = int(values.size)
    if samples < 2:
        return math.nan
    cut = int(trim * samples)
    kept = samples - 2 * cut
    winsorised = np.clip(values, values[cut], values[samples - cut - 1])
    return float(winsorised.var(ddof=1)) * samples * (samples - 1) / (kept * (kept - 1)) if kept > 1 else math.nan


def intraclass_correlation(block_variance: float, within_variance: float, samples: int) -> float:
    """How much of a sample's variance its whole block shares: 0, and more samples help; 1, and only more blocks do.

    Args:
        block_variance: Variance of the block values, which hold some of the samples' own.
        within_variance: Of one sample inside a block, as `sample_variance` gives it.
        samples: Samples that made a block value.

    Returns:
        In [0, 1]; a negative estimate counts as 0. nan when a variance is unknown or both are 0.

    Source: the one-way ICC(1,1) of Shrout & Fleiss (1979), doi:10.1037/0033-2909.86.2.420, from mean squares
        `samples * block_variance` and `within_variance`.
    """
    between = block_variance - within_variance / samples if samples else math.nan
    total = max(between, 0.0) + within_variance
    return max(between, 0.0) / total if math.isfinite(between) and total > 0 else math.nan


def autocorrelation(gates: Sequence[Sequence[float]], level: float = CONFIDENCE) -> Autocorrelation:
    """Lag-1 autocorrelation of block values inside gates, pooled, and its band under independence.

    Args:
        gates: Block log-ratios of each gate in the order they ran, ragged. Gates of under three blocks are left out.
        level: Of the band.

    Returns:
        Value and band; nan and (-1, 1) without a usable gate.

    Source: the band holds the values under random orders of the blocks inside each gate, from a fixed seed, so it is
        exact for any distribution and lies a little below zero, as the estimate does.
    """
    centred = [np.asarray(g, dtype=np.float64) - np.mean(g) for g in gates if len(g) > 2]
    total = sum(float(g @ g) for g in centred)
    if total <= 0:
        return Autocorrelation(value=math.nan, band=Interval(lower=-1.0, upper=1.0, level=level))
    draw = np.random.default_rng(_SEED)
    shuffled = np.zeros(PERMUTATIONS)
    for gate in centred:
        orders = draw.permuted(np.tile(gate, (PERMUTATIONS, 1)), axis=1)
        shuffled += (orders[:, :-1] * orders[:, 1:]).sum(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(shuffled / total, [tail, 1 - tail])
    return Autocorrelation(
        value=sum(float(g[:-1] @ g[1:]) for g in centred) / total,
        band=Interval(lower=float(low), upper=float(high), level=level),
    )
