"""Numbers that carry their uncertainty."""

from __future__ import annotations

from msgspec import Struct


class Interval(Struct, frozen=True, kw_only=True):
    """A two-sided confidence interval."""

    lower: float  # Lower bound; -inf when unknown
    upper: float  # Upper bound; +inf when unknown
    level: float  # Confidence level in (0, 1)


class Estimate(Struct, frozen=True, kw_only=True):
    """An effect on the log scale, with the variance between its units of inference.

    `math.expm1(log_ratio)` is the effect: candidate / baseline - 1, positive is slower.
    """

    log_ratio: float  # Mean of the per-block log-ratios, candidate over baseline; trimmed from 12 blocks on
    standard_error: float  # Standard error of `log_ratio`, from the variance between blocks; inf when fewer than two
    block_sd: float  # Standard deviation of the per-block log-ratios, robust from 12 blocks on; nan when fewer than two
    blocks: int  # Units of inference that entered: paired blocks, or rounds of the smaller side
    degrees_of_freedom: float  # Of the Student t that the interval uses; 0 when fewer than two blocks
    interval: Interval  # Interval for `log_ratio`, log scale
