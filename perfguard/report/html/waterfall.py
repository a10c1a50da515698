"""Where the difference between two steps went: from the baseline's step to the candidate's, in parts that add up."""

from __future__ import annotations

import math

from perfguard.records.steps.ops import Attribution
from perfguard.report.culprits import Part, parts_of
from perfguard.report.html.axes import LinearAxis
from perfguard.report.html.charts import Cell, Chart, Table
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.terminal.ops import balance_line
from perfguard.units import format_seconds, format_share

_HEIGHT = 24
_NOTHING = 1e-6
"""Parts of the difference that are smaller than this share of it are rounding."""


def waterfall(attribution: Attribution) -> Chart | None:
    """The plot as a table with a bar in each row; None where the steps' difference is unknown."""
    balance = attribution.balance
    if not all(math.isfinite(value) for value in (balance.baseline_s, balance.candidate_s, balance.delta_s)):
        return None
    parts = all_parts(attribution)
    ends = [balance.baseline_s]
    for part in parts:
        ends.append(ends[-1] + part.value_s)
    low, high = min(*ends, balance.candidate_s), max(*ends, balance.candidate_s)
    room = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    axis = LinearAxis(low=max(0.0, low - 4 * room), high=high + room)
    rows = [_total("baseline", balance.baseline_s, axis)]
    for start, part in zip(ends, parts, strict=False):
        # Of a difference that is within its noise nothing is a part.
        rows.append(_part(part, start, axis, whole_s=0.0 if balance.is_in_doubt else balance.delta_s))
    rows.append(_total("candidate", balance.candidate_s, axis))
    return Chart(
        kind="waterfall",
        title="Which ops?",
        figure=Table(
            columns=("part of a step", "from the baseline's step to the candidate's", ">time", ">of the difference"),
            rows=tuple(rows),
            caption="The difference between the steps, part by part",
            class_="waterfall",
        ),
        note=f"{balance_line(attribution)}. Bars begin at {format_seconds(axis.low)}, not at zero."
        if axis.low > 0
        else f"{balance_line(attribution)}.",
    )


def all_parts(attribution: Attribution) -> list[Part]:
    """Parts whose sum is the difference: those of `parts_of`, and what these leave out because it is small."""
    parts = parts_of(attribution)
    rest = attribution.balance.delta_s - math.fsum(part.value_s for part in parts)
    if abs(rest) > _NOTHING * abs(attribution.balance.delta_s):
        parts.append(Part("smaller parts", rest))
    return parts


def _part(part: Part, start_s: float, axis: LinearAxis, *, whole_s: float) -> tuple[Cell, ...]:
    class_ = "slower" if part.value_s > 0 else "faster"
    sign = "+" if part.value_s >= 0 else "-"
    share = format_share(part.value_s / whole_s) if whole_s else "-"
    text = f"{sign}{format_seconds(abs(part.value_s))}"
    bar = _bar(start_s, start_s + part.value_s, axis, class_, f"{part.name}: {text}")
    return (
        Cell(content=part.name, class_="name"),
        Cell(content=bar, class_="picture"),
        Cell(content=text, class_=f"num {class_}"),
        Cell(content=share, class_="num"),
    )


def _total(name: str, value_s: float, axis: LinearAxis) -> tuple[Cell, ...]:
    text = format_seconds(value_s)
    bar = _bar(axis.low, value_s, axis, name, f"{name}: {text}")
    return (
        Cell(content=name, class_="name total"),
        Cell(content=bar, class_="picture"),
        Cell(content=text, class_="num total"),
        Cell(content="", class_="num"),
    )


def _bar(from_s: float, to_s: float, axis: LinearAxis, class_: str, label: str) -> Element:
    left, right = sorted((axis.at(from_s), axis.at(to_s)))
    bar = element(
        "rect", x=percent(left), width=percent(max(0.002, right - left)), y=5, height=_HEIGHT - 10,
        class_=f"bar {class_}",
    )  # fmt: skip
    return picture(label, _HEIGHT, [bar])
