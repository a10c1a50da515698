"""Both arms' samples as empirical distribution functions: how the whole distribution moved, not only its middle."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.report.html.axes import LinearAxis
from perfguard.report.html.charts import Cell, Chart, Table, gridlines, levels
from perfguard.report.html.content import CaseEvidence
from perfguard.report.html.svg import picture, stretched
from perfguard.report.scales import bounds_of
from perfguard.units import format_count, format_seconds

_HEIGHT, _TOP, _FLOOR = 210, 16, 184
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_STEPS = 120
"""More steps of a curve can hardly be told apart, and a page has two curves for each of its cases."""


def ecdf(evidence: CaseEvidence) -> Chart | None:
    """The plot; None where nothing was timed. The outermost hundredth of the samples is cut off."""
    baseline, candidate = (_times(values) for values in (evidence.baseline_s, evidence.candidate_s))
    together = sorted((*baseline, *candidate))
    if not together:
        return None
    tail = len(together) // 100
    low, high = bounds_of(together[tail : len(together) - tail])
    axis = LinearAxis(low=low, high=high)
    heights = (_TOP, _FLOOR)
    shares = [(_FLOOR - share * (_FLOOR - _TOP), f"{share * 100:.0f} %") for share in (0.0, 0.5, 1.0)]
    parts = [
        *gridlines([(axis.at(tick), format_seconds(tick)) for tick in axis.ticks(6)], _FLOOR, top=_TOP),
        *levels(shares),
        *([stretched(_curve(baseline, axis), (0, 1), heights, class_="curve baseline")] if baseline else ()),
        *([stretched(_curve(candidate, axis), (0, 1), heights, class_="curve candidate")] if candidate else ()),
    ]
    arms = [(name, values) for name, values in (("baseline", baseline), ("candidate", candidate)) if values]
    counts = " and ".join(f"{format_count(len(values), 'sample')} of the {name}" for name, values in arms)
    return Chart(
        kind="ecdf",
        title="How did the whole distribution move?" if baseline else "How do the times scatter?",
        figure=picture(f"Share of samples that were at most as long: {counts}", _HEIGHT, parts),
        legend=tuple((f"key-{name}", f"{name}, {format_count(len(values), 'sample')}") for name, values in arms),
        note="Height: the share of samples that took at most so long. Curves apart from bottom to top: every sample "
        "moved. Curves that touch at one end: only some did.",
        data=_data(arms),
    )


def _times(values: Sequence[float]) -> list[float]:
    return sorted(value for value in values if math.isfinite(value))


def _curve(ordered: Sequence[float], axis: LinearAxis) -> str:
    """Steps from 0 to 100 % in a box of 1000 by 1000."""
    step = max(1, math.ceil(len(ordered) / _MOST_STEPS))
    points = ["M0 1000"]
    for index in [*range(step - 1, len(ordered) - 1, step), len(ordered) - 1]:
        x = axis.at(ordered[index]) * 1000
        points.append(f"H{x:.0f}V{1000 - (index + 1) / len(ordered) * 1000:.0f}")
    points.append("H1000")
    return "".join(points)


def _data(arms: Sequence[tuple[str, Sequence[float]]]) -> Table:
    rows = (
        (
            Cell(content=f"{quantile * 100:.0f} %", class_="num"),
            *(Cell(content=format_seconds(_quantile(values, quantile)), class_="num") for _, values in arms),
        )
        for quantile in _QUANTILES
    )
    return Table(columns=(">of the samples took at most", *(f">{name}" for name, _ in arms)), rows=tuple(rows))


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
