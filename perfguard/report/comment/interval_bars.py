"""Effects and their intervals as bars of text, for places that show no pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable

from perfguard.records.estimate import Estimate
from perfguard.units import format_effect

_CELLS_A_SIDE = 12
_LEAST_REACH = 0.02
"""The axis shows at least this log-ratio to both sides, so that noise looks as small as it is."""
_MOST_REACH = math.log(100)
"""Effects beyond a hundredfold end at the edge."""

BAR_WIDTH = 2 * _CELLS_A_SIDE + 1
"""Characters of a bar, and of an axis."""


def reach_of(estimates: Iterable[Estimate]) -> float:
    """Largest log-ratio that an axis must show for these estimates; infinite ends are left out."""
    ends = [abs(end) for e in estimates for end in (e.log_ratio, e.interval.lower, e.interval.upper)]
    return min(_MOST_REACH, max([_LEAST_REACH, *(end for end in ends if math.isfinite(end))]))


def interval_bar(estimate: Estimate, reach: float) -> str:
    """`·······│──█──·····`: the axis from `-reach` to `reach`, the interval on it, the effect in it, the middle is 0.

    Where the effect is unknown, the axis alone.
    """
    cells = ["·"] * BAR_WIDTH
    interval = estimate.interval
    if math.isfinite(estimate.log_ratio):
        lower = _cell(interval.lower if math.isfinite(interval.lower) else -reach, reach)
        upper = _cell(interval.upper if math.isfinite(interval.upper) else reach, reach)
        for place in range(lower, upper + 1):
            cells[place] = "─"
    cells[_CELLS_A_SIDE] = "│"
    if math.isfinite(estimate.log_ratio):
        cells[_cell(estimate.log_ratio, reach)] = "█"
    return "".join(cells)


def axis_labels(reach: float) -> str:
    """What stands above the bars: both ends, and 0 in the middle."""
    return f"{format_effect(-reach):<{_CELLS_A_SIDE}}0{format_effect(reach):>{_CELLS_A_SIDE}}"


def _cell(log_ratio: float, reach: float) -> int:
    return _CELLS_A_SIDE + round(min(1.0, max(-1.0, log_ratio / reach)) * _CELLS_A_SIDE)
