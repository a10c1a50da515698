"""Curves over an axis from zero: losses, utilisation, batches."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfguard.report.html.charts import LinearAxis, gridlines, height_of, levels
from perfguard.report.html.svg import Element, element, percent, picture, stretched
from perfguard.report.scales import nice_above

_TOP, _FLOOR = 14.0, 210.0  # Pixels of a chart
_GUTTER = 0.05  # Part of the width


class Curve(Struct, frozen=True):
    """Points joined by straight lines."""

    colour: int  # Index of a class `line-N`
    points: Sequence[tuple[float, float]]


def curves_picture(label: str, curves: Sequence[Curve], unit: str) -> Element:
    """Curves on common axes from zero; `unit` is that of the axis along which they run."""
    x_end = max((x for curve in curves for x, _ in curve.points), default=1.0) or 1.0
    y_end = nice_above(max((y for curve in curves for _, y in curve.points), default=1.0) or 1.0)
    x_axis, y_axis = LinearAxis(low=0.0, high=x_end), LinearAxis(low=0.0, high=y_end)
    ticks = ((_across(x_axis, tick), f"{tick:g} {unit}".strip()) for tick in x_axis.ticks(6))
    parts = list(gridlines(ticks, _TOP, _FLOOR))
    parts += levels((height_of(y_axis, tick, _TOP, _FLOOR), f"{tick:g}") for tick in y_axis.ticks())
    for curve in curves:
        places = [(1000 * _across(x_axis, x), 1000 * (1 - y_axis.at(y))) for x, y in curve.points]
        if len(places) > 1:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(stretched(path, _TOP, _FLOOR, class_=f"curve line-{curve.colour}"))
        elif places:
            x, y = curve.points[0]
            height = height_of(y_axis, y, _TOP, _FLOOR)
            parts.append(
                element("circle", cx=percent(_across(x_axis, x)), cy=height, r=3, class_=f"part-{curve.colour}")
            )
    return picture(label, _FLOOR + 40, parts)


def _across(axis: LinearAxis, x: float) -> float:
    """Curves begin right of the words at the upright axis."""
    return _GUTTER + (1 - _GUTTER) * axis.at(x)
