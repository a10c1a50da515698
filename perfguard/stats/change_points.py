"""Change points: where the level of a series jumped, in spite of outliers, drift and neighbours that are alike.

The recipe, measured against others in `tests/proof/change_points`:

1. An outlier is a value beyond 3 SD of the median of its 7 neighbours; it is moved to that limit.
2. The best piecewise constant fit, at a cost for each jump, proposes jumps (Killick, Fearnhead and Eckley 2012).
3. A jump stays if a regression on its neighbourhood shows it: levels before and after, with a slope that both share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from perfguard.stats.numeric import MAD_TO_SD

if TYPE_CHECKING:
    from perfguard.stats.paired import FloatArray

_NEIGHBOURS = 7  # Points of the running median
_CLIP_SD = 3.0
LEAST_POINTS = 5  # Of a level: a shorter one is an outlier
_JUMP_COST = 4.0  # Times log(points), in squared SDs
_WINDOW = 40  # Points before and after a jump that the regression looks at
_LEAST_Z = 4.0
_LEAST_LOG_RATIO = math.log1p(0.005)
_SMALLEST_SD = 1e-5  # Of log times: clocks and rounding
_LARGEST_CORRELATION = 0.9


class Jump(Struct, frozen=True, kw_only=True):
    """A change of a series' level."""

    index: int  # First point at the new level
    log_ratio: float  # New level over the old one
    lower: float  # 95 % interval of it
    upper: float
    z: float  # Standard normal deviate with the same p-value


def change_points(log_values: Sequence[float] | FloatArray) -> list[Jump]:
    """The jumps in a series of logarithms, shape `(points,)`, in the order in which they were measured.

    Jumps of less than 0.5 %, and levels of fewer than five points, are not found.
    """
    values = np.asarray(log_values, dtype=np.float64)
    if len(values) < 2 * LEAST_POINTS:
        return []
    sd = noise_sd(values)
    clipped = without_outliers(values, sd)
    return _shown(clipped, _proposed(clipped / sd))


def noise_sd(values: FloatArray) -> float:
    """SD of the noise between neighbouring points, whatever the levels: from the median of their differences."""
    steps = np.diff(values)
    deviation = np.median(np.abs(steps - np.median(steps)))
    return max(MAD_TO_SD * float(deviation) / math.sqrt(2), _SMALLEST_SD)


def without_outliers(values: FloatArray, sd: float) -> FloatArray:
    """The series with each outlier moved to the limit of what noise of that SD explains."""
    half = _NEIGHBOURS // 2
    padded = np.pad(values, half, mode="edge")
    typical = np.median(np.lib.stride_tricks.sliding_window_view(padded, _NEIGHBOURS), axis=1)
    clipped: FloatArray = np.clip(values, typical - _CLIP_SD * sd, typical + _CLIP_SD * sd)
    return clipped


def _proposed(scaled: FloatArray) -> list[int]:
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_POINTS).fit(scaled.reshape(-1, 1))
    *jumps, _ = search.predict(pen=_JUMP_COST * math.log(len(scaled)))
    return [int(place) for place in jumps]


def _shown(values: FloatArray, proposed: list[int]) -> list[Jump]:
    """What is left once the least certain jump has been removed as long as one is not shown."""
    borders = [0, *proposed, len(values)]
    found = {place: _jump(values, *borders[index : index + 3]) for index, place in enumerate(proposed)}
    while found:
        weakest = min(found.values(), key=_certainty)
        if _certainty(weakest) >= 1:
            break
        del found[weakest.index]
        borders.remove(weakest.index)
        before = next(index for index, border in enumerate(borders) if border > weakest.index) - 1
        for index in (before - 1, before):  # the neighbours have more points now
            if 0 <= index < len(borders) - 2:
                found[borders[index + 1]] = _jump(values, *borders[index : index + 3])
    return [found[place] for place in sorted(found)]


def _certainty(jump: Jump) -> float:
    return min(abs(jump.z) / _LEAST_Z, abs(jump.log_ratio) / _LEAST_LOG_RATIO)


def _jump(values: FloatArray, start: int, place: int, end: int) -> Jump:
    """The jump at a place, by least squares over levels and a shared slope between two borders."""
    from scipy import special  # takes as long as the rest of `perfguard history`, which may have no jump to judge

    start, end = max(start, place - _WINDOW), min(end, place + _WINDOW)
    times = np.arange(start, end, dtype=np.float64) - place
    design = np.column_stack([np.ones_like(times), times, times >= 0])
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ (design.T @ values[start:end])
    residuals = values[start:end] - design @ fitted
    freedom = len(residuals) - design.shape[1]
    variance = float(residuals @ residuals) / freedom * _inflation(residuals) * inverse[2, 2]
    jump, error = float(fitted[2]), max(math.sqrt(variance), _SMALLEST_SD)
    p = special.stdtr(freedom, -abs(jump) / error)
    half = float(special.stdtrit(freedom, 0.975)) * error
    z = math.copysign(-float(special.ndtri(max(p, 1e-300))), jump)
    return Jump(index=place, log_ratio=jump, lower=jump - half, upper=jump + half, z=z)


def _inflation(residuals: FloatArray) -> float:
    """Factor on the variance of a level whose points follow each other, by an autoregression of first order."""
    total = float(residuals @ residuals)
    if total <= 0:
        return 1.0
    correlation = float(residuals[:-1] @ residuals[1:]) / total
    correlation = min(max(correlation, 0.0), _LARGEST_CORRELATION)
    return (1 + correlation) / (1 - correlation)
