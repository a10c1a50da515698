"""Effects with their intervals as bars, one above the other on a common axis."""

from __future__ import annotations

import math
from collections.abc import Iterable

from perfguard.report.html.charts import RatioAxis, effect_axis, tick_text
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.scales import ratio_of

_ROW, _MIDDLE = 30, 15
_AXIS_HEIGHT = 22
_JOIN = 7  # Pixels by which margins reach into rows whose names have two lines, so that they are one band


Ends = tuple[float, float, float]
"""An effect and the ends of its interval, log ratios; an end is NaN where it is unknown."""


def common_axis(effects: Iterable[Ends]) -> RatioAxis:
    """An axis that shows most of the effects with their intervals."""
    return effect_axis(ratio_of(end) for ends in effects for end in ends if math.isfinite(end))


def scale_text(axis: RatioAxis) -> str:
    """What a reader must know of an axis whose steps are not equal; empty for one whose steps are."""
    return "" if axis.is_linear else "; the axis is logarithmic beyond 1 %"


def effect_bar(label: str, effect: Ends | None, axis: RatioAxis, class_: str, *, margin_ratio: float = 0.0) -> Element:
    """One row's picture: margin, zero, interval, effect; arrows where it lies beyond the axis."""
    left, right = axis.at(-margin_ratio), axis.at(margin_ratio)
    parts = [element("line", x1="50%", x2="50%", y1=-_JOIN, y2=_ROW + _JOIN, class_="zero")]
    if margin_ratio:
        width = percent(right - left)
        parts.insert(
            0, element("rect", x=percent(left), width=width, y=-_JOIN, height=_ROW + 2 * _JOIN, class_="margin")
        )
    if effect is not None and math.isfinite(effect[0]):
        parts += _interval(*effect[1:], axis, class_)
        place = percent(axis.at(ratio_of(effect[0])))
        parts.append(element("circle", cx=place, cy=_MIDDLE, r=5, class_=f"point {class_}"))
    return picture(label, _ROW, parts)


def _interval(log_lower: float, log_upper: float, axis: RatioAxis, class_: str) -> list[Element]:
    lower, upper = ratio_of(log_lower), ratio_of(log_upper)
    if math.isnan(lower) or math.isnan(upper):
        return []
    x1, x2 = percent(axis.at(lower)), percent(axis.at(upper))
    parts = [element("line", x1=x1, x2=x2, y1=_MIDDLE, y2=_MIDDLE, class_=f"interval {class_}")]
    for end, x in ((lower, x1), (upper, x2)):
        if axis.clips(end):
            sign, anchor = ("◀", "start") if end < 0 else ("▶", "end")
            parts.append(element("text", sign, x=x, y=_MIDDLE + 4, text_anchor=anchor, class_=f"clipped {class_}"))
        else:
            parts.append(element("line", x1=x, x2=x, y1=_MIDDLE - 5, y2=_MIDDLE + 5, class_=f"interval {class_}"))
    return parts


def effect_ticks(axis: RatioAxis) -> Element:
    """Values below the last row; nothing is faster than at once, -100 %."""
    parts = []
    for ratio in filter(lambda ratio: ratio > -1, axis.ticks()):
        share = axis.at(ratio)
        x, anchor = percent(share), "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        parts.append(element("line", x1=x, x2=x, y1=0, y2=5, class_="tick-mark"))
        parts.append(element("text", tick_text(ratio), x=x, y=17, text_anchor=anchor, class_="tick"))
    return picture("axis of effects", _AXIS_HEIGHT, parts)
