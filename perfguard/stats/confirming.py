"""The confirmation of a flag: further blocks, analysed a few times, and how likely they confirm a real slowdown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from perfguard.stats.paired import FloatArray
from perfguard.stats.spending import Spending, nominal_levels, sequential_p

CONFIRMATION_ANALYSES = (5, 10, 20)
"""Blocks after which a confirmation is analysed; a later analysis only where the earlier ones did not confirm. Each may
spend a third of the level."""
CONFIRM_LEVEL = 0.05  # One-sided, over all analyses
_SHARES = tuple(number / len(CONFIRMATION_ANALYSES) for number in range(1, len(CONFIRMATION_ANALYSES) + 1))
_DRAWS, _LARGEST_EFFECT, _STEP = 4000, 6.0, 0.05


def analyses_of(blocks: int) -> tuple[int, ...]:
    """Blocks of each analysis of so many; of fewer than the first needs there is one analysis."""
    return tuple(analysis for analysis in CONFIRMATION_ANALYSES if analysis <= blocks) or (blocks,)


def p_over_analyses(p_values: Sequence[float], blocks: Sequence[int]) -> float:
    """One p-value of all analyses so far, valid after any of them; `blocks` are those that each analysis used."""
    return sequential_p(Spending.EVEN, p_values, [float(count) for count in blocks], _SHARES[: len(p_values)])


def confirmation_power(effect_sds: float) -> float:
    """Chance that a slowdown is confirmed; it is given in standard deviations between blocks, on the log scale.

    By simulation of t-tests at the analyses with 4,000 fixed draws, interpolated: a standard error of at most 0.8 %.
    """
    effects, chances = _power_curve()
    return float(np.interp(effect_sds, effects, chances))


@lru_cache(maxsize=1)
def _power_curve() -> tuple[FloatArray, FloatArray]:
    information = [float(analysis) for analysis in CONFIRMATION_ANALYSES]
    levels = nominal_levels(Spending.EVEN, CONFIRM_LEVEL, information, _SHARES)
    noise = np.random.default_rng(20).standard_normal((_DRAWS, CONFIRMATION_ANALYSES[-1]))
    effects = np.arange(0.0, _LARGEST_EFFECT + _STEP, _STEP)
    is_confirmed = np.zeros((len(effects), _DRAWS), dtype=bool)
    for analysis, level in zip(CONFIRMATION_ANALYSES, levels, strict=True):
        seen = noise[:, :analysis]
        errors = seen.std(axis=1, ddof=1) / np.sqrt(analysis)
        t = (seen.mean(axis=1) + effects[:, None]) / errors
        is_confirmed |= t >= -special.stdtrit(analysis - 1, level)
    return effects, is_confirmed.mean(axis=1)
