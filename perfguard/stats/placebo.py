"""How much relocated but identical arms differ: the floor below which a case's slowdown means nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.records.estimate import Estimate

FloatArray = npt.NDArray[np.float64]

SHOWN_AT = 0.01
"""A spread counts only where chance gives as much in fewer than one case of a hundred. See decision 0005."""

LIMIT_LEVEL = 0.8
"""One-sided level of the spread's upper limit; 95 % gave 1.6 times the margin after three gates."""

FLOOR_SPREADS = 2.0
"""The floor is this many spreads at their upper limit: one placebo in forty lies above it. See decision 0005."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceboSpread:
    """SD between gates of the true effect of a placebo, log scale."""

    gates: int
    """Placebo gates that entered."""
    spread: float
    """Estimate; 0 where the gates differ no more than their blocks explain. nan without a gate."""
    upper: float
    """Upper confidence limit; inf without a gate."""
    p_none: float
    """p of H0 `placebos have no effect`; 1 without a gate."""

    @property
    def floor_ratio(self) -> float:
        """Smallest slowdown that layout luck does not explain, as a ratio; 0 where no placebo effect is shown."""
        return math.expm1(FLOOR_SPREADS * self.upper) if self.p_none <= SHOWN_AT and self.gates else 0.0


def placebo_spread(estimates: Sequence[Estimate], level: float = LIMIT_LEVEL) -> PlaceboSpread:
    """The spread of true placebo effects over gates, apart from what the blocks' own noise adds.

    Each placebo is drawn for both arms alike, so the effects are symmetric about zero: their mean is known, and a
    constant bias between the arms would count as spread, as it should.

    Args:
        estimates: One for each placebo gate; those without a standard error are left out.
        level: One-sided, of the upper limit.

    Source: the moment estimate of DerSimonian & Laird (1986), doi:10.1016/0197-2456(86)90046-2, with a known mean and
        weights by blocks (weights by the estimated precision are biased when it has few degrees of freedom); the limit
        by the Q-profile, Viechtbauer (2007), doi:10.1002/sim.2514; the test from t statistics turned into normal ones,
        whose squares add up to chi-squared exactly for normal blocks.
    Assumes: gates are independent; each estimate is normal with its own standard error.
    """
    used = [e for e in estimates if math.isfinite(e.standard_error) and e.standard_error > 0]
    if not used:
        return PlaceboSpread(gates=0, spread=math.nan, upper=math.inf, p_none=1.0)
    effects = np.array([e.log_ratio for e in used])
    variances = np.array([e.standard_error**2 for e in used])
    weights = np.array([float(e.blocks) for e in used])
    excess = float(weights @ (effects**2 - variances)) / float(weights.sum())
    return PlaceboSpread(
        gates=len(used),
        spread=math.sqrt(max(excess, 0.0)),
        upper=_upper_limit(effects**2, variances, level),
        p_none=_p_none(used),
    )


def _p_none(estimates: Sequence[Estimate]) -> float:
    tails = [stats.t.sf(abs(e.log_ratio / e.standard_error), e.degrees_of_freedom) for e in estimates]
    squares = [float(stats.norm.isf(max(tail, 1e-300))) ** 2 for tail in tails]
    return float(stats.chi2.sf(sum(squares), len(squares)))


def _upper_limit(squares: FloatArray, variances: FloatArray, level: float) -> float:
    """The spread at which effects this small would be as rare as 1 - level."""
    least = float(stats.chi2.ppf(1 - level, squares.size))

    def surplus(variance: float) -> float:
        return float((squares / (variance + variances)).sum()) - least

    if surplus(0.0) <= 0:
        return 0.0
    highest = float(squares.sum()) / least
    return math.sqrt(optimize.brentq(surplus, 0.0, highest * (1 + 1e-9), xtol=1e-16))
