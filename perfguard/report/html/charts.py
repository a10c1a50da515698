"""What every chart of a page is made of: cells, tables, axes, and the lines and values along these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from perfguard.report.html.svg import Element, element, percent
from perfguard.report.scales import limit_for, round_values
from perfguard.report.shown import Mark, Number

_LINEAR_LIMIT = 0.05
"""An axis of effects that reaches further is logarithmic beyond its middle, so that margins can still be seen."""
_LINEAR_RATIO = 0.01  # End of that middle part
_APART = 0.065
"""Values at an axis are at least so far apart, as a share of it, or their words would meet; the last ones, whose words
stand inwards, twice as far."""


class Cell(Struct, frozen=True, kw_only=True):
    """One cell of a table."""

    content: str | Element  # Text, or a picture
    sort: float | str | None = None  # What it is sorted by, where that is not its text
    class_: str = ""  # Its class; `num` aligns numbers
    link: str = ""
    """Where it leads: `#anchor`, or a relative address; empty for nowhere. Never what others wrote."""
    title: str = ""  # What it stands for in full, where its text is shorter


class Table(Struct, frozen=True, kw_only=True):
    """Rows under names."""

    columns: tuple[str, ...]  # Names; one that begins with `>` is right-aligned
    rows: tuple[tuple[Cell, ...], ...]  # One cell a column
    keys: tuple[str, ...] = ()  # What each row is filtered by; empty where the table is not filtered
    caption: str = ""  # What it shows
    is_sortable: bool = False  # Whether its names are buttons
    class_: str = ""  # Its class


class Chart(Struct, frozen=True, kw_only=True):
    """A picture with its words and numbers."""

    kind: str  # `pairs`, `ecdf`, …: names it in the page
    title: str  # What it answers
    figure: Element | Table  # The picture, or a table of pictures
    legend: tuple[tuple[str, str], ...] = ()  # Class of a sign and what it stands for
    note: str = ""  # How to read it, one or two sentences
    data: Table | None = None  # Its numbers, folded away; None where they stand beside it


def cells(*values: str | Number | Element | Cell) -> tuple[Cell, ...]:
    """A row of text, pictures and numbers; numbers are aligned and sorted by their value."""
    return tuple(
        value
        if isinstance(value, Cell)
        else Cell(content=value.text, sort=value.value, class_="num")
        if isinstance(value, Number)
        else Cell(content=value)
        for value in values
    )


def mark_cell(mark: Mark, text: str, *, sort: float | None = None) -> Cell:
    """What is said of a case or a run."""
    return Cell(content=text, sort=sort, class_=f"verdict {mark.class_}")


def gridlines(places: Iterable[tuple[float, str]], top: float, height: float) -> Iterator[Element]:
    """Vertical lines between two heights in pixels, at shares of the width, with their values below."""
    for share, text in places:
        x = percent(share)
        yield element("line", x1=x, x2=x, y1=top, y2=height, class_="grid")
        anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
        yield element("text", text, x=x, y=height + 14, text_anchor=anchor, class_="tick")


def levels(places: Iterable[tuple[float, str]]) -> Iterator[Element]:
    """Horizontal lines over the whole width, at pixels from the top, each with its value above its beginning."""
    for y, text in places:
        yield element("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid")
        yield element("text", text, x=2, y=y - 3, class_="tick")


def height_of(axis: LinearAxis | LogAxis, value: float, top: float, floor: float) -> float:
    """Pixels from the top, on an axis from the floor up."""
    return floor - axis.at(value) * (floor - top)


def tick_text(ratio: float) -> str:
    """`+5 %` at an axis of effects; `0` in its middle."""
    return "0" if abs(ratio) < 1e-9 else f"{ratio * 100:+.4g} %"


class LinearAxis(Struct, frozen=True, kw_only=True):
    """Equal steps."""

    low: float  # Value at its beginning
    high: float  # Value at its end; above `low`

    def at(self, value: float) -> float:
        """Place of a value; clipped to the axis."""
        return _clipped((value - self.low) / (self.high - self.low))

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within, ascending."""
        return round_values(self.low, self.high, most)


class RatioAxis(Struct, frozen=True, kw_only=True):
    """Effects as ratios around zero, to the same limit on both sides."""

    limit: float  # Ratio at its end

    @property
    def is_linear(self) -> bool:
        """Whether its steps are equal throughout."""
        return self.limit <= _LINEAR_LIMIT

    def at(self, ratio: float) -> float:
        """Place of an effect; clipped to the axis, with zero in the middle."""
        return _clipped(0.5 + 0.5 * self._height(ratio) / self._height(self.limit))

    def clips(self, ratio: float) -> bool:
        """Whether an effect lies beyond the axis."""
        return abs(ratio) > self.limit * (1 + 1e-9)

    def ticks(self) -> list[float]:
        """Round ratios on both sides of zero, ascending."""
        if self.is_linear:
            sizes = [self.limit / 2, self.limit]
        else:
            decades = (_LINEAR_RATIO, 0.1, 1.0, 10.0)
            sizes = [*(size for size in decades if 0.5 + _APART < self.at(size) < 1 - 2 * _APART), self.limit]
        return [*(-size for size in reversed(sizes)), 0.0, *sizes]

    def _height(self, ratio: float) -> float:
        if self.is_linear:
            return ratio
        return math.copysign(math.log1p(abs(ratio) / _LINEAR_RATIO), ratio)


class LogAxis(Struct, frozen=True, kw_only=True):
    """Equal steps for equal ratios."""

    low: float  # Value at its beginning; above zero
    high: float  # Value at its end; above `low`

    def at(self, value: float) -> float:
        """Place of a value above zero; clipped to the axis."""
        return _clipped(math.log(value / self.low) / math.log(self.high / self.low))

    def ticks(self) -> list[float]:
        """Powers of ten within, ascending."""
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def effect_axis(ratios: Iterable[float | None]) -> RatioAxis:
    """An axis that shows most of the effects and ends of intervals; the others are clipped."""
    return RatioAxis(limit=limit_for(ratios))


def near_axis(values: Sequence[float]) -> LinearAxis:
    """An axis around finite values, with zero where that is not far from them; some room at both ends."""
    low, high = min(values), max(values)
    if max(low, -high) > 3 * (high - low):
        room = (high - low) * 0.25 or abs(high) * 0.05 or 1.0
    else:
        low, high = min(low, 0.0), max(high, 0.0)
        room = (high - low) * 0.12 or 0.01
    return LinearAxis(low=low - room, high=high + room)


def _clipped(share: float) -> float:
    return 0.0 if math.isnan(share) else min(1.0, max(0.0, share))
