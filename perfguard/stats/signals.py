"""Block values and tests for signals beside wall time: ratios of amounts, differences of counts.

As for times, samples are reduced to one number a block, and only those numbers carry the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfguard.records.estimate import Interval
from perfguard.stats.one_sided import p_slower
from perfguard.stats.paired import SAMPLE_TRIM, estimate_paired, from_standard_error

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = npt.NDArray[np.float64]

LEAST_BLOCK_SD = 0.001
"""Amounts are taken to scatter by a thousandth between blocks at least. Identical readings, such as a peak of memory
counted in pages, are no proof of infinite precision."""


@dataclass(frozen=True, slots=True)
class BlockPairs:
    """The samples of one block in which both arms could be read, paired by position."""

    baseline: FloatArray
    """Shape `(pairs,)`, finite and not negative."""
    candidate: FloatArray
    """The same for the candidate."""


def readable_pairs(baseline: Sequence[float | None], candidate: Sequence[float | None]) -> BlockPairs:
    """Pairs of neighbouring samples without those where a value is missing, not finite, or negative."""
    pairs = [
        (before, after)
        for before, after in zip(baseline, candidate, strict=False)
        if before is not None and after is not None and _is_amount(before) and _is_amount(after)
    ]
    both = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return BlockPairs(both[:, 0], both[:, 1])


def positive_pairs(pairs: BlockPairs) -> BlockPairs:
    """Those pairs whose ratio exists: both above zero."""
    kept = (pairs.baseline > 0) & (pairs.candidate > 0)
    return BlockPairs(pairs.baseline[kept], pairs.candidate[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One threshold that a change has to clear: block values that are above zero where it does."""

    up: tuple[float, ...]
    """How far the candidate is above the bar in each block; shape `(blocks,)`."""
    down: tuple[float, ...]
    """The same with the arms exchanged."""
    least_sd: float
    """Smallest believable standard deviation of these values between blocks."""

    def p_up(self) -> float:
        """One-sided p of H0 `the candidate is not above the bar`; 1 with fewer than two blocks."""
        return _p_positive(self.up, self.least_sd)

    def p_down(self) -> float:
        """The same with the arms exchanged."""
        return _p_positive(self.down, self.least_sd)

    def is_under(self, level: float) -> bool:
        """Whether the change is shown to lie under the bar both ways, by two-sided intervals of this level."""
        return all(_interval(values, self.least_sd, level).upper < 0 for values in (self.up, self.down))


def ratio_bar(blocks: Sequence[BlockPairs], margin_ratio: float) -> Bar:
    """The candidate's amount is above `1 + margin_ratio` times the baseline's. All values must be above zero."""
    log_ratios = [_trimmed_mean(np.log(block.candidate) - np.log(block.baseline)) for block in blocks]
    margin = math.log1p(margin_ratio)
    return Bar(
        up=tuple(value - margin for value in log_ratios),
        down=tuple(-value - margin for value in log_ratios),
        least_sd=LEAST_BLOCK_SD,
    )


def difference_bar(blocks: Sequence[BlockPairs], margin: float, *, least_sd: float) -> Bar:
    """The candidate's value is above the baseline's by more than `margin`, in the unit of the values."""
    differences = [_trimmed_mean(block.candidate - block.baseline) for block in blocks]
    return Bar(
        up=tuple(value - margin for value in differences),
        down=tuple(-value - margin for value in differences),
        least_sd=least_sd,
    )


def share_bar(blocks: Sequence[BlockPairs], margin_ratio: float, *, least_sd: float) -> Bar:
    """Like `ratio_bar` for counts, which may be zero: the candidate less `1 + margin_ratio` times the baseline."""
    factor = 1 + margin_ratio
    return Bar(
        up=tuple(_trimmed_mean(block.candidate - factor * block.baseline) for block in blocks),
        down=tuple(_trimmed_mean(block.baseline - factor * block.candidate) for block in blocks),
        least_sd=least_sd,
    )


def least_sd_of_counts(blocks: Sequence[BlockPairs]) -> float:
    """Standard deviation between blocks that counts have by being counts: the root of their number.

    Source: the variance of a Poisson count is its mean; for a mean over the pairs of a block, divided by their number.
    """
    pairs = float(np.mean([block.baseline.size for block in blocks]))
    total = float(np.mean([float(block.baseline.mean() + block.candidate.mean()) for block in blocks]))
    return math.sqrt(total / pairs)


def _p_positive(values: Sequence[float], least_sd: float) -> float:
    estimate = estimate_paired(values, 0.95)
    least = least_sd / math.sqrt(max(1, estimate.blocks))
    if estimate.standard_error < least:
        estimate = replace(estimate, standard_error=least)
    return p_slower(estimate, 0.0)


def _interval(values: Sequence[float], least_sd: float, level: float) -> Interval:
    estimate = estimate_paired(values, level)
    least = least_sd / math.sqrt(max(1, estimate.blocks))
    if estimate.standard_error >= least:
        return estimate.interval
    return from_standard_error(
        estimate.log_ratio,
        least,
        block_sd=least_sd,
        blocks=estimate.blocks,
        degrees_of_freedom=estimate.degrees_of_freedom,
        level=level,
    ).interval


def _trimmed_mean(values: FloatArray) -> float:
    ordered = np.sort(values)
    cut = int(SAMPLE_TRIM * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def _is_amount(value: float) -> bool:
    return math.isfinite(value) and value >= 0
