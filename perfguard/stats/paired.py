"""The paired estimator: samples inside a block, then blocks; the block is the unit of inference.

Samples of one block share a process, a heap layout and a hash seed, so they say nothing about how the effect
varies from process to process. They are reduced to one number per block, and only those numbers carry the
variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from scipy import special

from perfguard.errors import MeasurementError
from perfguard.records.estimate import Estimate, Interval

FloatArray = npt.NDArray[np.float64]

SAMPLE_TRIM = 0.2
"""Share of the paired samples cut at each end. With 20 pairs and 8 % of samples hit by a burst the SD of the block's
value falls from 0.41 % (trim 0.1) to 0.27 %; on clean samples it costs 4 % of the SD. See decision 0003."""

BLOCKS_PER_TRIMMED_PAIR = 10  # One block is cut at each end for every ten blocks

MIN_BLOCKS_TO_TRIM = 12
"""Below this nothing is cut: the lost degrees of freedom cost more than a wild block does. See decision 0003."""

SHRINKAGE = 3.0
"""How many median variances are added to a block's own before it is turned into a weight. A block's own variance comes
from eight samples and says nothing of what differs between processes; with 3, noise that is the same in all blocks
costs 0.7 % of the standard error, and a disturbed block still has a small weight. See decision 0007."""

ZERO_ERROR = 1e-12  # Standard errors below this are rounding noise of identical values, not a measurement of precision


def positive_times(values_s: Sequence[float]) -> FloatArray:
    """Seconds per iteration as an array, shape `(samples,)`; may be empty.

    Raises:
        MeasurementError: A value is zero, negative, nan or infinite.
    """
    times_s = np.asarray(values_s, dtype=np.float64)
    bad = ~(np.isfinite(times_s) & (times_s > 0))
    if bad.any():
        position = int(np.argmax(bad))
        raise MeasurementError(
            f"sample {position} took {times_s[position]} s; a time must be finite and above zero: "
            "check the worker's clock and its calibration"
        )
    return times_s


class BlockEffect(Struct, frozen=True, kw_only=True):
    """What one block says of a case."""

    log_ratio: float  # Candidate over baseline; nan when there is no pair of samples
    variance: float
    """Squared standard error of it from the samples alone; nan when too few are left after trimming."""


def trimmed_mean(values: FloatArray, trim: float = SAMPLE_TRIM) -> tuple[float, float]:
    """Mean of what is left after cutting a share at each end, and its squared standard error.

    The error is nan with fewer than two values left. Times the number of values it is the variance of a single value,
    as far as the mean feels it.

    Source: Yuen (1974), doi:10.1093/biomet/61.1.165.
    """
    ordered, size = np.sort(values), values.size
    cut = int(trim * size)
    kept = ordered[cut : size - cut]
    if kept.size < 2:
        return float(kept.mean()), math.nan
    winsorised = np.clip(ordered, kept[0], kept[-1])
    return float(kept.mean()), float(winsorised.var(ddof=1)) * (size - 1) / (kept.size * (kept.size - 1))


def block_effect(baseline_s: Sequence[float], candidate_s: Sequence[float]) -> BlockEffect:
    """One block's log-ratio: the trimmed mean over pairs of neighbouring samples, and how much these scatter.

    Both arms give seconds per iteration in the order they ran, shape `(samples,)`. The k-th samples ran next to each
    other, so their ratio is free of drift that is slow against a sample. With unequal counts the common prefix is
    paired; without a pair the log-ratio is nan. The variance stays the same when the arms are swapped, so whatever is
    weighted by it is blind to which arm is slower.

    Raises:
        MeasurementError: A time is zero, negative, nan or infinite.

    Assumes: within a pair, which arm ran first is drawn at random, so the order has no expected effect.
    """
    return _block_effect(tuple(baseline_s), tuple(candidate_s))


@lru_cache(maxsize=4096)  # each interim analysis asks for the blocks of those before it again
def _block_effect(baseline_s: tuple[float, ...], candidate_s: tuple[float, ...]) -> BlockEffect:
    baseline, candidate = positive_times(baseline_s), positive_times(candidate_s)
    pairs = min(baseline.size, candidate.size)
    if pairs == 0:
        return BlockEffect(log_ratio=math.nan, variance=math.nan)
    log_ratio, variance = trimmed_mean(np.log(candidate[:pairs]) - np.log(baseline[:pairs]))
    return BlockEffect(log_ratio=log_ratio, variance=variance)


def trimmed_blocks(blocks: int) -> int:
    """How many blocks are cut at *each* end out of `blocks`."""
    return blocks // BLOCKS_PER_TRIMMED_PAIR if blocks >= MIN_BLOCKS_TO_TRIM else 0


def estimate_paired(
    block_log_ratios: Sequence[float], level: float, variances: Sequence[float] | None = None
) -> Estimate:
    """The effect over blocks: a weighted, trimmed mean with Student-t limits from the variance between blocks.

    A block whose samples scatter more than those of others, because a neighbour was busy, has less weight. From 12
    blocks on one in ten is cut at each end as well, so that no burst that samples do not show hides a regression.

    Args:
        block_log_ratios: One value per block, shape `(blocks,)`; nan (a block without a pair) is left out.
        level: Two-sided confidence level in (0, 1).
        variances: Each block's own, from `block_effect`, shape `(blocks,)`; nan counts as typical. None: all blocks
            have the same weight, and this is Yuen's trimmed t.

    Returns:
        `block_sd` is `standard_error * sqrt(blocks)`: the SD that a plain mean would need for the same precision. No
        block: log-ratio nan, interval infinite. One block: its value, interval infinite. Identical values: standard
        error 0 and an interval of one point.

    Raises:
        MeasurementError: A value is infinite.
        ValueError: `level` is not in (0, 1).

    Source: Tukey & McLaughlin (1963); Yuen (1974), doi:10.1093/biomet/61.1.165, for winsorising and trimming;
        MacKinnon & White (1985), doi:10.1016/0304-4076(85)90158-7, for the variance (HC2), which holds whatever the
        blocks' true variances are; degrees of freedom from the effective number of blocks, Kish (1965).
        Decision 0007.
    Assumes: blocks are independent, and their values symmetric about the effect. Arms that do the same work
        are exchangeable, so under "no change" the symmetry holds by design, weights included.
    """
    if not 0 < level < 1:
        raise ValueError(f"the confidence level must be in (0, 1), not {level}")
    values = np.asarray(block_log_ratios, dtype=np.float64)
    known = ~np.isnan(values)
    own = np.ones(values.size) if variances is None else np.asarray(variances, dtype=np.float64)
    values, weights = values[known], _weights(own[known])
    if np.isinf(values).any():
        raise MeasurementError("a block's log-ratio is infinite; one arm's time must have been zero or infinite")
    if values.size < 2:
        return Estimate(
            log_ratio=float(values[0]) if values.size else math.nan,
            standard_error=math.inf,
            block_sd=math.nan,
            blocks=int(values.size),
            degrees_of_freedom=0.0,
            interval=Interval(lower=-math.inf, upper=math.inf, level=level),
        )
    order = np.argsort(values, kind="stable")
    return _estimate_sorted(values[order], weights[order], level)


def _weights(variances: FloatArray) -> FloatArray:
    """Weights of blocks, of mean 1; all alike where no variance is known."""
    known = variances[np.isfinite(variances)]
    typical = float(np.median(known)) if known.size else 0.0
    if typical <= 0:
        return np.ones(variances.size)
    weights: FloatArray = 1 / (np.where(np.isfinite(variances), variances, typical) + SHRINKAGE * typical)
    weights /= weights.mean()
    return weights


def _estimate_sorted(values: FloatArray, weights: FloatArray, level: float) -> Estimate:
    blocks = values.size
    cut = trimmed_blocks(blocks)
    kept = blocks - 2 * cut
    inside = slice(cut, blocks - cut)
    total, total_inside = float(weights.sum()), float(weights[inside].sum())
    centre = float((weights[inside] * values[inside]).sum()) / total_inside
    winsorised = np.clip(values, values[cut], values[blocks - cut - 1])
    residuals = winsorised - float((weights * winsorised).sum()) / total
    spread = float((weights**2 * residuals**2 / (1 - weights / total)).sum())
    # With equal weights this is Yuen's standard error to the digit.
    trimming = (blocks - 1) * kept / (blocks * (kept - 1))
    standard_error = math.sqrt(spread * trimming) / total_inside
    effective = total**2 / float((weights**2).sum())
    return from_standard_error(
        centre,
        standard_error,
        block_sd=standard_error * math.sqrt(blocks),
        blocks=blocks,
        degrees_of_freedom=max(1.0, effective - 1 - 2 * cut),
        level=level,
    )


def from_standard_error(
    log_ratio: float, standard_error: float, *, block_sd: float, blocks: int, degrees_of_freedom: float, level: float
) -> Estimate:
    """An estimate with the t interval that follows from its standard error; rounding noise counts as zero."""
    if standard_error < ZERO_ERROR:
        standard_error, block_sd = 0.0, 0.0
    half_width = float(special.stdtrit(degrees_of_freedom, 0.5 + level / 2)) * standard_error
    return Estimate(
        log_ratio=log_ratio,
        standard_error=standard_error,
        block_sd=block_sd,
        blocks=blocks,
        degrees_of_freedom=degrees_of_freedom,
        interval=Interval(lower=log_ratio - half_width, upper=log_ratio + half_width, level=level),
    )
