"""Quantiles and roots without `scipy.stats` and `scipy.optimize`, whose imports take longer than all their use here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

Q = TypeVar("Q", float, np.ndarray)

MAD_TO_SD = 1.4826  # SD of a normal distribution over its median absolute deviation
_HALVINGS = 200  # Ends earlier, where no number is left between the limits


def chi2_quantile(q: Q, degrees_of_freedom: float) -> Q:
    """Quantile of the chi-squared distribution; degrees of freedom may be fractional."""
    from scipy import special  # readers of a short history need only the constant above

    result: Q = 2 * special.gammaincinv(degrees_of_freedom / 2, q)
    return result


def root_between(function: Callable[[float], float], low: float, high: float, *, within: float = 0.0) -> float:
    """Where a monotone function is zero, by bisection; its values at the limits differ in sign."""
    is_rising = function(high) > 0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if high - low <= within or not low < middle < high:
            break
        if (function(middle) > 0) is is_rising:
            high = middle
        else:
            low = middle
    return (low + high) / 2
