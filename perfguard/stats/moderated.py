"""Differences of many series, each seen in a few pairs: their noise is estimated together.

Four pairs leave a variance three degrees of freedom, and among hundreds of series the smallest of such variances makes
the largest t. Two things that the series have in common help. What a pair does to all of them alike (one process was
slower as a whole) is separated from their own noise; and each variance is drawn to what is usual for a series of its
size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace
from scipy import special

from perfguard.stats.paired import FloatArray

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]
MIN_SERIES = 12  # Fewer series say nothing of each other: plain variances and Student's t
ROUNDING = 1e-9  # Differences below this part of the level are rounding, not measurement
_NEWTON_STEPS = 50


class SharedNoise(Struct, frozen=True, kw_only=True, eq=False):
    """The noise of series of differences, one value for each pair."""

    pairs: int  # Pairs that it was seen in; under 2 it is unknown
    shift: FloatArray
    """What each pair does to all series alike, relative to their levels, shape `(pairs,)`; 0 with too few series."""
    variance: FloatArray  # Of one pair's difference, the shift apart, shape `(series,)`; inf where unknown
    degrees: FloatArray  # Degrees of freedom of `variance`, shape `(series,)`
    prior_degrees: float
    """How much a series' variance is drawn towards the others', in degrees of freedom; 0 for not at all."""


class Differences(Struct, frozen=True, kw_only=True, eq=False):
    """Mean differences with their intervals, each of shape `(series,)`."""

    mean: FloatArray
    lower: FloatArray  # Lower end of the interval; -inf where it is unknown
    upper: FloatArray  # Upper end; inf where it is unknown
    p: FloatArray
    """Two-sided, of H0 `no difference`; 1 where nothing can be said. It never contradicts the interval: where that
    includes 0, p is above one minus its level."""


class VariancePrior(Struct, frozen=True, kw_only=True):
    """The law of many variances: log-linear in a level, scattering as a scaled inverse chi-squared."""

    intercept: float  # Logarithm of the variance at level 1
    slope: float  # Its rise with the level's logarithm, 0 to 2
    degrees: float  # How closely variances keep to it, in degrees of freedom

    def draw(self, own: FloatArray, own_degrees: float, levels: FloatArray) -> FloatArray:
        """Variances drawn to those to expect at their levels."""
        expected = np.exp(self.intercept + self.slope * np.log(levels))
        drawn: FloatArray = (self.degrees * expected + own_degrees * own) / (self.degrees + own_degrees)
        return drawn


def estimate_noise(deltas: FloatArray, levels: FloatArray, informative: BoolArray) -> SharedNoise:
    """What the series say together of their noise.

    Deltas, candidate minus baseline, have the shape `(pairs, series)`, levels, the mean of both arms and not negative,
    `(series,)`. Informative are series large enough for their noise to be like that of others; the rest keeps its plain
    variance.

    Source: Smyth (2004), doi:10.2202/1544-6115.1027, for the moderated variance and its degrees of freedom; the
        trend in the level as Sartor et al. (2006), doi:10.1186/1471-2105-7-538, have it.
    Assumes: pairs are independent, and series but for the shift; variances of series of one size scatter about a
        common value. Less than half of the informative series really change: the shift is their median.
    """
    pairs, series = deltas.shape
    shift, variance, degrees = np.zeros(pairs), np.full(series, math.inf), np.zeros(series)
    if pairs < 2:
        return SharedNoise(pairs=pairs, shift=shift, variance=variance, degrees=degrees, prior_degrees=0.0)
    used = informative & (levels > 0)
    enough = int(used.sum()) >= MIN_SERIES
    if enough:
        shift = np.median(deltas[:, used] / levels[used], axis=1)
    variance = (deltas - np.outer(shift, levels)).var(axis=0, ddof=1)
    degrees += pairs - 1
    prior = _fit_prior(levels[used], variance[used], pairs - 1) if enough else None
    if prior is not None:
        variance[used] = prior.draw(variance[used], pairs - 1, levels[used])
        degrees[used] += prior.degrees
    prior_degrees = prior.degrees if prior else 0.0
    return SharedNoise(pairs=pairs, shift=shift, variance=variance, degrees=degrees, prior_degrees=prior_degrees)


def prior_of_sums(
    deltas: FloatArray, levels: FloatArray, noise: SharedNoise, groups: Sequence[IntArray]
) -> VariancePrior | None:
    """How the noise of sums over groups follows from that of their series; None where too few groups say it.

    Series of one group may have more in common than the shift, such as code that lies badly in a process and is run by
    all of them. Then their sum is noisier than independent series make it, and how much so is seen over the groups.
    Deltas, of shape `(pairs, series)`, levels, of shape `(series,)`, and noise are those of the series; a group is the
    positions of its series, never empty.
    """
    several = [columns for columns in groups if columns.size > 1]
    if noise.pairs < 2 or len(several) < MIN_SERIES:
        return None
    own = np.array([_variance_of_sum(deltas, levels, noise, columns) for columns in several])
    expected = np.array([noise.variance[columns].sum() for columns in several])
    known = expected > 0
    return _fit_prior(np.sqrt(expected[known]), own[known], noise.pairs - 1)


def noise_of_sums(
    deltas: FloatArray, levels: FloatArray, noise: SharedNoise, groups: Sequence[IntArray], prior: VariancePrior | None
) -> SharedNoise:
    """The noise of sums over groups of series, with arguments as for `prior_of_sums`.

    The variance of a sum over several series is drawn to the prior; None leaves it as it is.
    """
    variance, degrees = np.full(len(groups), math.inf), np.zeros(len(groups))
    for position, columns in enumerate(groups):
        if columns.size == 1 or noise.pairs < 2:
            variance[position], degrees[position] = noise.variance[columns[0]], noise.degrees[columns[0]]
            continue
        variance[position] = _variance_of_sum(deltas, levels, noise, columns)
        degrees[position] = noise.pairs - 1
        expected = noise.variance[columns].sum()
        if prior is not None and expected > 0:
            variance[position] = prior.draw(variance[position], noise.pairs - 1, np.sqrt(expected))
            degrees[position] += prior.degrees
    return replace(noise, variance=variance, degrees=degrees)


def _variance_of_sum(deltas: FloatArray, levels: FloatArray, noise: SharedNoise, columns: IntArray) -> float:
    return float((deltas[:, columns].sum(axis=1) - noise.shift * levels[columns].sum()).var(ddof=1))


def mean_differences(
    deltas: FloatArray, levels: FloatArray, noise: SharedNoise, *, level: float, extra_error: FloatArray
) -> Differences:
    """Means over the pairs, with two-sided intervals of this level and p-values.

    Deltas have the shape `(pairs, series)`, levels and extra errors `(series,)`. Extra errors are standard errors that
    the pairs do not show: of a constant that all pairs share.

    Source: the interval's half-width is the root of the summed squares of what the shift and the series' own noise take
        by themselves, Howe (1974), doi:10.2307/2286019. That is safe but far too cautious out in the tail, where lists
        of many series are judged; there p has Satterthwaite's (1946) degrees of freedom, doi:10.2307/3002019. These
        reject too often where the shift is all the noise there is, but then all series are one.
    """
    mean = deltas.mean(axis=0)
    if noise.pairs < 2:
        infinite = np.full(mean.size, math.inf)
        return Differences(mean=mean, lower=-infinite, upper=infinite, p=np.ones(mean.size))
    shared = levels**2 * noise.shift.var(ddof=1) / noise.pairs
    own = noise.variance / noise.pairs + extra_error**2
    tail = (1 - level) / 2
    half_width = np.sqrt(
        special.stdtrit(noise.pairs - 1, tail) ** 2 * shared + special.stdtrit(noise.degrees, tail) ** 2 * own
    )
    distance = np.where(np.abs(mean) <= ROUNDING * levels, 0.0, np.abs(mean))
    p = _p_values(distance, shared, own, noise)
    undecided = np.nextafter(1 - level, 1)
    return Differences(
        mean=mean,
        lower=mean - half_width,
        upper=mean + half_width,
        p=np.where(distance > half_width, p, np.maximum(p, undecided)),
    )


def _p_values(distance: FloatArray, shared: FloatArray, own: FloatArray, noise: SharedNoise) -> FloatArray:
    spread = shared**2 / (noise.pairs - 1) + own**2 / noise.degrees
    degrees = np.divide((shared + own) ** 2, spread, out=noise.degrees.copy(), where=spread > 0)
    error = np.sqrt(shared + own)
    # Without any noise a difference is certain.
    certain = np.where(distance > 0, math.inf, 0.0)
    p: FloatArray = 2 * special.stdtr(degrees, -np.divide(distance, error, out=certain, where=error > 0))
    return np.minimum(p, 1.0)


def _fit_prior(levels: FloatArray, variances: FloatArray, degrees: int) -> VariancePrior | None:
    """Moments of log variances: what scatters more than chi-squared explains is how much the true ones differ."""
    varying = variances > 0
    if int(varying.sum()) < MIN_SERIES:
        return None
    log_level, log_variance = np.log(levels[varying]), np.log(variances[varying])
    spread = log_level.var()
    slope = float(np.mean((log_level - log_level.mean()) * log_variance) / spread) if spread > 0 else 0.0
    # Between noise that does not know the level and noise in proportion to it.
    slope = min(max(slope, 0.0), 2.0)
    residual = log_variance - slope * log_level - special.psi(degrees / 2) + math.log(degrees / 2)
    expected = float(special.polygamma(1, degrees / 2))
    kurtosis = float(special.polygamma(3, degrees / 2)) / expected**2
    # One standard error towards variances that differ more: a prior that is taken for too sure invents differences.
    caution = 1 + math.sqrt((2 + kurtosis) / residual.size)
    excess = caution * float(residual.var(ddof=2)) - expected
    # All series together have no more degrees of freedom than this.
    most = float(degrees * (residual.size - 1))
    prior_degrees = min(2 * _trigamma_inverse(excess), most) if excess > 0 else most
    intercept = float(residual.mean()) + float(special.psi(prior_degrees / 2)) - math.log(prior_degrees / 2)
    return VariancePrior(intercept=intercept, slope=slope, degrees=prior_degrees)


def _trigamma_inverse(value: float) -> float:
    """Newton's method on 1 / trigamma, which is convex: Smyth (2004), appendix."""
    if value > 1e7:
        return 1 / math.sqrt(value)
    if value < 1e-6:
        return 1 / value
    x = 0.5 + 1 / value
    for _ in range(_NEWTON_STEPS):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step < 1e-8 * x:
            break
    return x
