"""Whether enough pairs of processes were profiled to know how much the steps of two arms differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from perfguard.profile.changes.diff import LEVEL
from perfguard.profile.op_times.typical_steps import typical_steps

PRECISION = 0.03
"""Of the step: how far the 95 % interval of a difference may reach to either side. Parts of the difference that are
smaller than that are hard to tell from noise, and regressions that are worth a look are hardly smaller."""


def is_settled(baseline_s: Sequence[Sequence[float]], candidate_s: Sequence[Sequence[float]]) -> bool:
    """Whether the pairs tell the difference of the steps to `PRECISION`.

    Only the width of the interval counts, not where it lies: who goes on until a difference shows will see one where
    there is none.

    Args:
        baseline_s: Seconds of the baseline's steps, by process.
        candidate_s: Of the candidate's, in the processes that ran beside those.

    Source: the two stages of Stein (1945), doi:10.1214/aoms/1177731088; the second is of a fixed size here.
    """
    pairs = [(before, after) for before, after in zip(baseline_s, candidate_s, strict=True) if before and after]
    if len(pairs) < 2:
        return False
    ratios = np.log([_typical(after) / _typical(before) for before, after in pairs])
    half_width = -special.stdtrit(len(pairs) - 1, (1 - LEVEL) / 2) * float(ratios.std(ddof=1)) / math.sqrt(len(pairs))
    return bool(half_width <= PRECISION)


def _typical(seconds: Sequence[float]) -> float:
    values = np.asarray(seconds, dtype=np.float64)
    return float(typical_steps(values, np.zeros(values.size, dtype=np.int64), (0,))[0])
