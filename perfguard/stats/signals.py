"""Block values and tests for signals beside wall time: ratios of amounts, differences of counts.

As for times, samples are reduced to one number a block, and only those numbers carry the variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfguard.records.estimate import Estimate
from perfguard.stats.p_values import p_slower
from perfguard.stats.paired import FloatArray, estimate_paired, from_standard_error, trimmed_mean

LEAST_BLOCK_SD = 0.001
"""Amounts are taken to scatter by a thousandth between blocks at least. Identical readings, such as a peak of memory
counted in pages, are no proof of infinite precision."""
LEAST_SHARE_SD = 0.01
"""The same for shares of a whole, from 0 to 1."""


class BlockPairs(Struct, frozen=True):
    """The samples of one block in which both arms could be read, paired by position."""

    baseline: FloatArray  # Shape `(pairs,)`, finite and not negative
    candidate: FloatArray  # The same for the candidate


_LARGEST = 1e150  # Squares of larger values overflow


def readable_pairs(baseline: Sequence[float | None], candidate: Sequence[float | None]) -> BlockPairs:
    """Pairs of neighbouring samples without those where a value is missing, negative, not finite or close to it."""
    pairs = list(zip(baseline, candidate, strict=False))
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)  # None becomes nan
    both = both[((both >= 0) & (both < _LARGEST)).all(axis=1)]
    return BlockPairs(both[:, 0], both[:, 1])


def positive_pairs(pairs: BlockPairs) -> BlockPairs:
    """Those pairs whose ratio exists: both above zero."""
    kept = (pairs.baseline > 0) & (pairs.candidate > 0)
    return BlockPairs(pairs.baseline[kept], pairs.candidate[kept])


class Bar(Struct, frozen=True, kw_only=True):
    """One threshold that a change has to clear: block values that are above zero where it does."""

    up: tuple[float, ...]  # How far the candidate is above the bar in each block; shape `(blocks,)`
    down: tuple[float, ...]  # The same with the arms exchanged
    least_sd: float  # Smallest believable standard deviation of these values between blocks

    def p_up(self) -> float:
        """One-sided p of H0 `the candidate is not above the bar`; 1 with fewer than two blocks."""
        return p_slower(_estimate(self.up, self.least_sd), 0.0)

    def p_down(self) -> float:
        """The same with the arms exchanged."""
        return p_slower(_estimate(self.down, self.least_sd), 0.0)

    def is_under(self, level: float) -> bool:
        """Whether the change is shown to lie under the bar both ways, by two-sided intervals of this level."""
        return all(_estimate(values, self.least_sd, level).interval.upper < 0 for values in (self.up, self.down))


def ratio_bar(blocks: Sequence[BlockPairs], margin_ratio: float) -> Bar:
    """The candidate's amount is above `1 + margin_ratio` times the baseline's. All values must be above zero."""
    log_pairs = [BlockPairs(np.log(block.baseline), np.log(block.candidate)) for block in blocks]
    return difference_bar(log_pairs, math.log1p(margin_ratio), least_sd=LEAST_BLOCK_SD)


def difference_bar(blocks: Sequence[BlockPairs], margin: float, *, least_sd: float) -> Bar:
    """The candidate's value is above the baseline's by more than `margin`, in the unit of the values."""
    differences = [trimmed_mean(block.candidate - block.baseline)[0] for block in blocks]
    return Bar(
        up=tuple(value - margin for value in differences),
        down=tuple(-value - margin for value in differences),
        least_sd=least_sd,
    )


def share_bar(blocks: Sequence[BlockPairs], margin_ratio: float, *, least_sd: float) -> Bar:
    """Like `ratio_bar` for counts, which may be zero: the candidate less `1 + margin_ratio` times the baseline."""
    factor = 1 + margin_ratio
    return Bar(
        up=tuple(trimmed_mean(block.candidate - factor * block.baseline)[0] for block in blocks),
        down=tuple(trimmed_mean(block.baseline - factor * block.candidate)[0] for block in blocks),
        least_sd=least_sd,
    )


def least_sd_of_counts(blocks: Sequence[BlockPairs]) -> float:
    """Standard deviation between blocks that counts have by being counts: the root of their number.

    Source: the variance of a Poisson count is its mean; for a mean over the pairs of a block, divided by their number.
    """
    pairs = float(np.mean([block.baseline.size for block in blocks]))
    total = float(np.mean([float(block.baseline.mean() + block.candidate.mean()) for block in blocks]))
    return math.sqrt(total / pairs)


def _estimate(values: Sequence[float], least_sd: float, level: float = 0.95) -> Estimate:
    """The mean over blocks, with a believable standard error."""
    estimate = estimate_paired(values, level)
    least = least_sd / math.sqrt(max(1, estimate.blocks))
    if estimate.standard_error >= least:
        return estimate
    return from_standard_error(
        estimate.log_ratio,
        least,
        block_sd=least_sd,
        blocks=estimate.blocks,
        degrees_of_freedom=estimate.degrees_of_freedom,
        level=level,
    )
