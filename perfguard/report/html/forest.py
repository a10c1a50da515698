"""The forest plot: a row a case, its effect and interval on one axis, with the margin that a regression must exceed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfguard.records.case_names import short_names
from perfguard.records.estimate import Estimate
from perfguard.records.spec import Gating
from perfguard.records.verdict import Verdict
from perfguard.report.html.axes import EffectAxis, effect_axis
from perfguard.report.html.charts import Cell, Chart, Table
from perfguard.report.html.marks import mark_of
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.html.tables import name_cell
from perfguard.report.scales import ratio_of
from perfguard.report.terminal.result import format_interval
from perfguard.units import format_change, format_effect

_HEIGHT, _MIDDLE = 30, 15
_AXIS_HEIGHT = 22
_JOIN = 7
"""Pixels by which margins reach into rows whose names have two lines, so that they are one band."""


def forest(verdicts: Sequence[Verdict], links: Mapping[str, str]) -> Chart | None:
    """The plot; None where no case has an effect.

    Args:
        verdicts: In the order in which they are shown.
        links: Where each case's details stand, by case id.
    """
    known = [v.effect for v in verdicts if v.effect is not None]
    if not known:
        return None
    axis = effect_axis(ratio for estimate in known for ratio in _ratios(estimate))
    names = short_names(verdict.case_id for verdict in verdicts)
    rows = [_row(verdict, axis, names, links) for verdict in verdicts]
    head = (Cell(content=""), Cell(content=_axis(axis), class_="axis"), Cell(content=""), Cell(content=""))
    scale = "" if axis.is_linear else "; the axis is logarithmic beyond 1 %"
    return Chart(
        kind="forest",
        title="How big is it?",
        figure=Table(
            columns=("case", "candidate against baseline", ">effect", "verdict"),
            rows=(*rows, head),
            keys=(*(verdict.case_id for verdict in verdicts), ""),
            caption="Effect of each case with its interval",
            class_="forest",
        ),
        legend=(("key-interval", "effect and 95 % interval"), ("key-margin", "within the case's margin")),
        note=f"Right is slower{scale}. A case is red only when it is significantly slower than its margin.",
    )


def _row(verdict: Verdict, axis: EffectAxis, names: Mapping[str, str], links: Mapping[str, str]) -> tuple[Cell, ...]:
    mark, estimate = mark_of(verdict.outcome), verdict.effect
    advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
    effect = f"{format_effect(estimate.log_ratio)} {format_interval(estimate)}" if estimate else "-"
    return (
        name_cell(verdict.case_id, names, links),
        Cell(content=_bar(verdict, axis, effect), class_="picture"),
        Cell(content=effect, class_="num"),
        Cell(content=f"{mark.sign} {mark.word}{advisory}", class_=f"verdict {mark.class_}"),
    )


def _bar(verdict: Verdict, axis: EffectAxis, effect: str) -> Element:
    """One row's picture: margin, zero, interval, effect; arrows where it lies beyond the axis."""
    estimate, mark = verdict.effect, mark_of(verdict.outcome)
    margin = verdict.comparison.margin_ratio
    left, right = axis.at(-margin), axis.at(margin)
    parts = [
        element(
            "rect", x=percent(left), width=percent(right - left), y=-_JOIN, height=_HEIGHT + 2 * _JOIN, class_="margin"
        ),
        element("line", x1="50%", x2="50%", y1=-_JOIN, y2=_HEIGHT + _JOIN, class_="zero"),
    ]
    if estimate is not None and math.isfinite(estimate.log_ratio):
        parts += _interval(estimate, axis, mark.class_)
        place = axis.at(ratio_of(estimate.log_ratio))
        parts.append(element("circle", cx=percent(place), cy=_MIDDLE, r=5, class_=f"point {mark.class_}"))
    label = f"{verdict.case_id}: {effect}, {mark.word}"
    return picture(label, _HEIGHT, parts)


def _interval(estimate: Estimate, axis: EffectAxis, class_: str) -> list[Element]:
    lower, upper = (ratio_of(end) for end in (estimate.interval.lower, estimate.interval.upper))
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


def _axis(axis: EffectAxis) -> Element:
    """Values below the last row."""
    parts = []
    for ratio in axis.ticks():
        if ratio <= -1:  # nothing is faster than at once
            continue
        x = axis.at(ratio)
        anchor = "start" if x < 0.02 else "end" if x > 0.98 else "middle"
        text = "0" if not ratio else format_change(ratio).replace(".0 %", " %")
        parts.append(element("line", x1=percent(x), x2=percent(x), y1=0, y2=5, class_="tick-mark"))
        parts.append(element("text", text, x=percent(x), y=17, text_anchor=anchor, class_="tick"))
    return picture("axis of effects", _AXIS_HEIGHT, parts)


def _ratios(estimate: Estimate) -> tuple[float, ...]:
    ends = (estimate.log_ratio, estimate.interval.lower, estimate.interval.upper)
    return tuple(ratio_of(end) for end in ends if math.isfinite(end))
