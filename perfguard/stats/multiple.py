"""Many tests at once: Holm for a gate, Benjamini-Hochberg for lists that are only read.

A sign-flip max-T was measured against Holm on the trimmed t statistic and left out: decision 0003.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = npt.NDArray[np.float64]


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjusted p-values, in the order given.

    Rejecting where the adjusted p is at most alpha keeps the chance of *any* false rejection at alpha or
    under, whatever the dependence between the tests.

    Args:
        p_values: Valid p-values, shape `(tests,)`; may be empty.

    Raises:
        ValueError: A value is nan or outside [0, 1].

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = p[order] * (p.size - np.arange(p.size))
    return _restored(np.minimum(np.maximum.accumulate(stepped), 1.0), order)


def benjamini_hochberg(p_values: Sequence[float]) -> tuple[float, ...]:
    """Benjamini-Hochberg step-up adjusted p-values, in the order given.

    Controls the expected share of false entries in a list, not the chance of a false alarm: never decide a
    gate by it.

    Args:
        p_values: Valid p-values, shape `(tests,)`; may be empty.

    Raises:
        ValueError: A value is nan or outside [0, 1].

    Source: Benjamini & Hochberg (1995), doi:10.1111/j.2517-6161.1995.tb02031.x.
    Assumes: tests independent or positively dependent (PRDS).
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")[::-1]
    stepped = p[order] * p.size / (p.size - np.arange(p.size))
    return _restored(np.minimum(np.minimum.accumulate(stepped), 1.0), order)


def _checked(p_values: Sequence[float]) -> FloatArray:
    p = np.asarray(p_values, dtype=np.float64)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError(f"p-values must be in [0, 1]: {list(p_values)}")
    return p


def _restored(adjusted: FloatArray, order: npt.NDArray[np.intp]) -> tuple[float, ...]:
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return tuple(float(value) for value in result)
