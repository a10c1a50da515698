"""Neighbouring blocks that are alike: they say less than as many independent ones, so intervals get wider."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfguard.records.estimate import Estimate
from perfguard.stats.paired import ZERO_ERROR, from_standard_error

LEAST_BLOCKS = 8  # Fewer show nothing
_LEVEL_Z = 2.33  # One-sided 1 % of the normal distribution
_LARGEST = 0.9  # Autocorrelation that is reckoned with at most


def inflation_of(block_log_ratios: Sequence[float]) -> float:
    """Factor by which the standard error of the blocks' mean is larger than if they were independent.

    The values are in the order in which the blocks ran, shape `(blocks,)`; nan is left out. 1 unless the
    autocorrelation at lag 1 is shown to be positive, at 1 %.

    Source: Bartlett (1946) for its variance, 1 / n, and mean, -1 / n, under independence; Kendall (1954) for its bias;
        sqrt((1 + r) / (1 - r)) for an autoregression of first order.
    """
    values = np.asarray(block_log_ratios, dtype=np.float64)
    values = values[np.isfinite(values)]
    centred, blocks = values - values.mean() if values.size else values, values.size
    total = float(centred @ centred)
    if blocks < LEAST_BLOCKS or total <= blocks * ZERO_ERROR**2:
        return 1.0
    found = float(centred[:-1] @ centred[1:]) / total
    if (found + 1 / blocks) * math.sqrt(blocks) < _LEVEL_Z:
        return 1.0
    likely = min(found + (1 + 4 * found) / blocks, _LARGEST)
    return math.sqrt((1 + likely) / (1 - likely))


def widened(estimate: Estimate, inflation: float) -> Estimate:
    """The estimate of blocks that are alike, by the factor of `inflation_of`; the blocks scatter as before."""
    if inflation <= 1 or not math.isfinite(estimate.standard_error):
        return estimate
    return from_standard_error(
        estimate.log_ratio,
        estimate.standard_error * inflation,
        block_sd=estimate.block_sd,
        blocks=estimate.blocks,
        degrees_of_freedom=estimate.degrees_of_freedom,
        level=estimate.interval.level,
    )
