"""Differences of many series between arms that are alike, for tests of what their noise says together."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def series(
    rng: np.random.Generator,
    pairs: int,
    levels: FloatArray,
    *,
    relative_sd: float = 0.03,
    degrees: float = math.inf,
    shared_sd: float = 0.0,
) -> FloatArray:
    """Differences of arms that are alike; true variances scatter as scaled inverse chi-squared ones do."""
    spread = 1.0 if math.isinf(degrees) else np.sqrt(degrees / rng.chisquare(degrees, levels.size))
    own = relative_sd * spread * rng.standard_normal((pairs, levels.size))
    found: FloatArray = levels * (own + shared_sd * rng.standard_normal((pairs, 1)))
    return found
