"""What repeated A/A gates say of a machine: false alarms, block SDs, independent blocks, and the luck of layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from scipy import special

from perfguard.records.estimate import Estimate, Interval
from perfguard.stats.numeric import chi2_quantile, root_between
from perfguard.stats.paired import FloatArray, estimate_paired

CONFIDENCE = 0.95  # Level of every bound and interval that a calibration states
PERMUTATIONS = 999  # Random orders that make the null band of an autocorrelation

SHOWN_AT = 0.01
"""A placebo's spread counts only where chance gives as much in fewer than one case of a hundred. See decision 0005."""

LIMIT_LEVEL = 0.8  # One-sided level of that spread's upper limit; 95 % gave 1.6 times the margin after three gates

FLOOR_SPREADS = 2.0
"""The floor is this many spreads at their upper limit: one placebo in forty lies above it. See decision 0005."""

_SEED = 20_250_101


class PooledSpread(Struct, frozen=True, kw_only=True):
    """A standard deviation from several gates, each with a level of its own."""

    sd: float
    """Pooled SD of the block log-ratios, as `Estimate.block_sd` has it; nan when no gate has two blocks."""
    interval: Interval  # For the SD; infinite when it is unknown


class PlaceboSpread(Struct, frozen=True, kw_only=True):
    """SD between gates of the true effect of a placebo, log scale."""

    gates: int
    spread: float  # Estimate; 0 where the gates differ no more than their blocks explain. nan without a gate.
    upper: float  # Upper confidence limit; inf without a gate
    p_none: float  # p of H0 `placebos have no effect`; 1 without a gate

    @property
    def floor_ratio(self) -> float:
        """Smallest slowdown that layout luck does not explain, as a ratio; 0 where no placebo effect is shown."""
        return math.expm1(FLOOR_SPREADS * self.upper) if self.p_none <= SHOWN_AT and self.gates else 0.0


def upper_bound(count: int, trials: int) -> float:
    """Exact one-sided 95 % bound for a rate of which `count` of `trials` were seen; 1 without a trial.

    Raises:
        ValueError: `count` is negative or above `trials`.

    Source: Clopper & Pearson (1934), doi:10.1093/biomet/26.4.404. 0 of 35 gives 8.2 %, 0 of 299 and 1 of 473 give 1 %.
    """
    if not 0 <= count <= trials:
        raise ValueError(f"{count} events in {trials} trials")
    return 1.0 if count == trials else float(special.betaincinv(count + 1, trials - count, CONFIDENCE))


def pooled_spread(
    gates: Sequence[Sequence[float]],
    level: float = CONFIDENCE,
    variances: Sequence[Sequence[float] | None] | None = None,
) -> PooledSpread:
    """SD of the block log-ratios over several gates, each with its own mean.

    Gates are block log-ratios, shape `(gates, blocks)`, ragged; those of under two blocks are left out. With variances
    of the blocks, as `estimate_paired` takes them, for each gate, the SD is the one that a plain mean would need for
    the precision that weighting gives. The level is that of the two-sided interval.

    Source: the pooled variance with its chi-squared interval. Heavy tails widen it: a sample variance varies by
        2/df + kurtosis/n (relative, squared), so df is divided by 1 + kurtosis/2; Bonett (2006),
        doi:10.1016/j.csda.2004.10.003, for the idea. Negative estimates of the kurtosis count as 0.
    """
    own = variances or [None] * len(gates)
    used = [(np.asarray(gate, np.float64), known) for gate, known in zip(gates, own, strict=True) if len(gate) > 1]
    if not used:
        unknown = Interval(lower=0.0, upper=math.inf, level=level)
        return PooledSpread(sd=math.nan, interval=unknown)
    estimates = [estimate_paired(gate.tolist(), level, known) for gate, known in used]
    degrees = sum(e.degrees_of_freedom for e in estimates)
    variance = sum(e.degrees_of_freedom * e.block_sd**2 for e in estimates) / degrees
    effective = degrees / (1 + _excess_kurtosis([gate for gate, _ in used]) / 2)
    tail = (1 - level) / 2
    lower, upper = (math.sqrt(variance * effective / chi2_quantile(q, effective)) for q in (1 - tail, tail))
    interval = Interval(lower=lower, upper=upper, level=level)
    return PooledSpread(sd=math.sqrt(variance), interval=interval)


def _excess_kurtosis(gates: Sequence[FloatArray]) -> float:
    residuals = np.concatenate([(g - g.mean()) * math.sqrt(g.size / (g.size - 1)) for g in gates])
    variance = float(np.mean(residuals**2))
    return max(0.0, float(np.mean(residuals**4)) / variance**2 - 3) if variance > 0 else 0.0


def intraclass_correlation(block_variance: float, within_variance: float, samples: int) -> float:
    """How much of a sample's variance its whole block shares: 0, and more samples help; 1, and only more blocks do.

    The block variance is that of the values of blocks, each of so many samples, and holds some of the samples' own; the
    variance within is that of one sample, as `trimmed_mean` feels it. A negative estimate counts as 0; nan when a
    variance is unknown or both are 0.

    Source: the one-way ICC(1,1) of Shrout & Fleiss (1979), doi:10.1037/0033-2909.86.2.420, from mean squares
        `samples * block_variance` and `within_variance`.
    """
    between = block_variance - within_variance / samples if samples else math.nan
    total = max(between, 0.0) + within_variance
    return max(between, 0.0) / total if math.isfinite(between) and total > 0 else math.nan


def autocorrelation(gates: Sequence[Sequence[float]], level: float = CONFIDENCE) -> tuple[float, Interval]:
    """Lag-1 autocorrelation of block values inside gates, pooled, and its band of this level under independence.

    Gates are block log-ratios in the order they ran, ragged. Those of under three blocks are left out; without any the
    value is nan and the band (-1, 1).

    Source: the band holds the values under random orders of the blocks inside each gate, from a fixed seed, so it is
        exact for any distribution and lies a little below zero, as the estimate does.
    """
    centred = [np.asarray(g, dtype=np.float64) - np.mean(g) for g in gates if len(g) > 2]
    total = sum(float(g @ g) for g in centred)
    if total <= 0:
        return math.nan, Interval(lower=-1.0, upper=1.0, level=level)
    draw = np.random.default_rng(_SEED)
    shuffled = np.zeros(PERMUTATIONS)
    for gate in centred:
        orders = draw.permuted(np.tile(gate, (PERMUTATIONS, 1)), axis=1)
        shuffled += (orders[:, :-1] * orders[:, 1:]).sum(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(shuffled / total, [tail, 1 - tail])
    value = sum(float(g[:-1] @ g[1:]) for g in centred) / total
    return value, Interval(lower=float(low), upper=float(high), level=level)


def placebo_spread(estimates: Sequence[Estimate], level: float = LIMIT_LEVEL) -> PlaceboSpread:
    """How much relocated but identical arms differ: the spread of true effects, apart from the blocks' own noise.

    Each placebo is drawn for both arms alike, so the effects are symmetric about zero: their mean is known, and a
    constant bias between the arms would count as spread, as it should. There is one estimate for each placebo gate;
    those without a standard error are left out. The level is that of the one-sided upper limit.

    Source: the moment estimate of DerSimonian & Laird (1986), doi:10.1016/0197-2456(86)90046-2, with a known mean and
        weights by blocks (weights by the estimated precision are biased when it has few degrees of freedom); the limit
        by the Q-profile, Viechtbauer (2007), doi:10.1002/sim.2514; the test from t statistics turned into normal ones,
        whose squares add up to chi-squared exactly for normal blocks.
    Assumes: gates are independent; each estimate is normal with its own standard error.
    """
    used = [e for e in estimates if math.isfinite(e.standard_error) and e.standard_error > 0]
    if not used:
        return PlaceboSpread(gates=0, spread=math.nan, upper=math.inf, p_none=1.0)
    squares = np.array([e.log_ratio for e in used]) ** 2
    variances = np.array([e.standard_error**2 for e in used])
    weights = np.array([float(e.blocks) for e in used])
    excess = float(weights @ (squares - variances)) / float(weights.sum())
    tails = [special.stdtr(e.degrees_of_freedom, -abs(e.log_ratio / e.standard_error)) for e in used]
    normal = sum(float(special.ndtri(max(tail, 1e-300))) ** 2 for tail in tails)
    return PlaceboSpread(
        gates=len(used),
        spread=math.sqrt(max(excess, 0.0)),
        upper=_upper_limit(squares, variances, level),
        p_none=float(special.chdtrc(len(used), normal)),
    )


def _upper_limit(squares: FloatArray, variances: FloatArray, level: float) -> float:
    """The spread at which effects this small would be as rare as 1 - level."""
    least = float(chi2_quantile(1 - level, squares.size))

    def surplus(variance: float) -> float:
        return float((squares / (variance + variances)).sum()) - least

    if surplus(0.0) <= 0:
        return 0.0
    highest = float(squares.sum()) / least
    return math.sqrt(root_between(surplus, 0.0, highest * (1 + 1e-9)))


def survival(lasted: Sequence[tuple[int, bool]]) -> tuple[float, ...]:
    """Chance of lasting at least n units, for n = 1, 2, …, one more than the longest that was seen.

    Of each it is known how long it lasted, from 1, and whether it then ended; False where only watching did. The
    product-limit estimate has the shape `(longest + 1,)`, and is empty without anything watched. After the longest that
    was seen it stays what it is, for nothing shows how it goes on.

    Source: Kaplan & Meier (1958), doi:10.1080/01621459.1958.10501452.
    Assumes: watching ends for other reasons than what is watched.
    """
    chance, chances = 1.0, []
    for length in range(1, max((length for length, _ in lasted), default=-1) + 1):
        chances.append(chance)
        watched = sum(found >= length for found, _ in lasted)
        ended = sum(found == length and has_ended for found, has_ended in lasted)
        chance *= 1 - ended / watched
    return (*chances, chance) if chances else ()
