"""P-values: one-sided against a margin, from an estimate; and adjusted, where there are many at once.

A sign-flip max-T was measured against Holm on the trimmed t statistic and left out: decision 0003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from perfguard.records.estimate import Estimate
from perfguard.stats.paired import FloatArray


def p_slower(estimate: Estimate, margin_ratio: float) -> float:
    """One-sided p of H0 "slower by the margin at most": `theta <= log(1 + margin)`; a margin of 0.005 is 0.5 %.

    Returns:
        In [0, 1]; 1 without a variance estimate (under two blocks), since nothing can be said. With a standard error of
        zero the t limit would be 0; the smallest p that signs alone support, `2**-blocks`, is given instead.

    Raises:
        ValueError: The margin is negative or not finite.

    Source: Student's t against a shifted null; Wellek (2010), Testing Statistical Hypotheses of Equivalence
        and Noninferiority, 2nd ed., section 2.3.
    """
    return _p_positive(estimate, estimate.log_ratio - _log_margin(margin_ratio))


def p_faster(estimate: Estimate, margin_ratio: float) -> float:
    """One-sided p of H0 `theta >= -log(1 + margin)`: `p_slower` with the arms swapped."""
    return _p_positive(estimate, -estimate.log_ratio - _log_margin(margin_ratio))


def p_outside(estimate: Estimate, limit_ratio: float) -> float:
    """The p of H0 "the effect lies outside `(-log(1 + limit), log(1 + limit))`": the larger of two one-sided ones.

    At level `(1 - c) / 2` this rejects exactly where the two-sided interval of level `c` lies inside the limits, which
    are symmetric on the log scale, so that exchanging the arms changes nothing. Values as of `p_slower`.

    Source: Schuirmann (1987), doi:10.1007/BF01068419, two one-sided tests.
    """
    return _p_positive(estimate, _log_margin(limit_ratio) - abs(estimate.log_ratio))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjusted p-values, shape `(tests,)`, in the order given.

    Rejecting where the adjusted p is at most alpha keeps the chance of *any* false rejection at alpha or under,
    whatever the dependence between the tests.

    Raises:
        ValueError: A value is nan or outside [0, 1].

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = p[order] * (p.size - np.arange(p.size))
    return _restored(np.maximum.accumulate(stepped), order)


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Benjamini-Hochberg step-up adjusted p-values, shape `(tests,)`, in the order given.

    Controls the expected share of false entries in a list, not the chance of a false alarm: never decide a gate by it.

    Raises:
        ValueError: A value is nan or outside [0, 1].

    Source: Benjamini & Hochberg (1995), doi:10.1111/j.2517-6161.1995.tb02031.x.
    Assumes: tests independent or positively dependent (PRDS).
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")[::-1]
    stepped = p[order] * p.size / (p.size - np.arange(p.size))
    return _restored(np.minimum.accumulate(stepped), order)


def _p_positive(estimate: Estimate, excess: float) -> float:
    """One-sided p of H0 `the true excess is 0 at most`, with the precision of the estimate."""
    if estimate.degrees_of_freedom <= 0 or not math.isfinite(estimate.standard_error):
        return 1.0
    if estimate.standard_error == 0:
        return 0.5**estimate.blocks if excess > 0 else 1.0
    return float(special.stdtr(estimate.degrees_of_freedom, -excess / estimate.standard_error))


def _log_margin(ratio: float) -> float:
    if not (math.isfinite(ratio) and ratio >= 0):
        raise ValueError(f"the margin must be finite and at least 0, not {ratio}")
    return math.log1p(ratio)


def _checked(p_values: Sequence[float]) -> FloatArray:
    p = np.asarray(p_values, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError(f"p-values must be in [0, 1]: {list(p_values)}")
    return p


def _restored(stepped: FloatArray, order: np.ndarray[tuple[int], np.dtype[np.intp]]) -> tuple[float, ...]:
    result = np.empty_like(stepped)
    result[order] = np.minimum(stepped, 1.0)
    return tuple(result.tolist())
