"""Paired differences, a point for each block in the order of measuring: shows drift, warm-up and outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.records.estimate import Estimate
from perfguard.report.html.axes import LinearAxis, near_axis
from perfguard.report.html.charts import Chart, Table, levels, numbers, text_cells
from perfguard.report.html.content import BlockPoint
from perfguard.report.html.svg import Element, element, percent, picture
from perfguard.report.scales import ratio_of
from perfguard.units import format_change, format_count, format_effect

_HOW_TO_READ = (
    "A block is a pair of fresh processes; above zero the candidate was slower. Drift, warm-up and outliers would show "
    "here. The more a block's samples scatter, the less it counts."
)
_VOIDED = "\N{MULTIPLICATION SIGN}"
_HEIGHT, _TOP, _FLOOR = 200, 18, 176


def pairs(blocks: Sequence[BlockPoint], estimate: Estimate | None) -> Chart | None:
    """The plot; None where nothing is paired.

    Args:
        blocks: In the order of measuring.
        estimate: What the blocks that count come to; None without one.
    """
    if not blocks:
        return None
    values = [ratio_of(block.log_ratio) for block in blocks]
    mean = [ratio_of(end) for end in _ends(estimate) if math.isfinite(end)]
    axis = near_axis([*values, *mean])
    parts = [
        *_mean(estimate, axis),
        *levels([(_y(axis, tick), _tick(tick)) for tick in axis.ticks(4)]),
        *([element("line", x1="0%", x2="100%", y1=_y(axis, 0), y2=_y(axis, 0), class_="zero")] if _has(axis) else ()),
        *_stages(blocks),
        *(_point(blocks, index, axis) for index in range(len(blocks))),
        *_numbers(blocks),
    ]
    voided = sum(bool(block.voided) for block in blocks)
    label = f"Effect of {format_count(len(blocks), 'block')} in order, {voided} of them voided"
    return Chart(
        kind="pairs",
        title="Is it real? Each block on its own",
        figure=picture(label, _HEIGHT, parts),
        legend=_legend(blocks, estimate),
        note=_HOW_TO_READ + ("" if _has(axis) else " Zero lies outside of this picture."),
        data=_data(blocks),
    )


def _has(axis: LinearAxis) -> bool:
    return axis.low < 0 < axis.high


def _ends(estimate: Estimate | None) -> tuple[float, ...]:
    if estimate is None:
        return ()
    return estimate.log_ratio, estimate.interval.lower, estimate.interval.upper


def _y(axis: LinearAxis, ratio: float) -> float:
    return _FLOOR - axis.at(ratio) * (_FLOOR - _TOP)


def _tick(ratio: float) -> str:
    return "0" if abs(ratio) < 1e-9 else format_change(ratio).replace(".0 %", " %")


def _mean(estimate: Estimate | None, axis: LinearAxis) -> list[Element]:
    """The interval as a band, the mean as a line; nothing where they are unknown."""
    if estimate is None or not all(math.isfinite(end) for end in _ends(estimate)):
        return []
    middle, lower, upper = (_y(axis, ratio_of(end)) for end in _ends(estimate))
    return [
        element("rect", x="0%", width="100%", y=upper, height=max(1.0, lower - upper), class_="band"),
        element("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="mean"),
    ]


def _x(blocks: Sequence[BlockPoint], index: int) -> float:
    """Points begin right of the axis' words."""
    return 0.09 + 0.89 * (index + 0.5) / len(blocks)


def _point(blocks: Sequence[BlockPoint], index: int, axis: LinearAxis) -> Element:
    block = blocks[index]
    x, y = _x(blocks, index), _y(axis, ratio_of(block.log_ratio))
    why = f", voided: {'; '.join(block.voided)}" if block.voided else ""
    title = element("title", f"block {block.block + 1} ({block.stage.value}): {format_effect(block.log_ratio)}{why}")
    if block.voided:
        return element("text", title, _VOIDED, x=percent(x), y=y + 5, text_anchor="middle", class_="voided")
    if block.stage.is_confirmation:
        return element("text", title, "◇", x=percent(x), y=y + 5, text_anchor="middle", class_="confirming")
    sign = "slower" if block.log_ratio > 0 else "faster"
    return element("circle", title, cx=percent(x), cy=y, r=4, class_=f"point {sign}")


def _stages(blocks: Sequence[BlockPoint]) -> list[Element]:
    """A line and a word where another stage begins."""
    parts = []
    for index in range(1, len(blocks)):
        if blocks[index].stage is not blocks[index - 1].stage:
            x = percent((_x(blocks, index - 1) + _x(blocks, index)) / 2)
            parts.append(element("line", x1=x, x2=x, y1=4, y2=_FLOOR, class_="stage"))
            parts.append(element("text", f" {blocks[index].stage.value} ▸", x=x, y=12, class_="tick"))
    return parts


def _numbers(blocks: Sequence[BlockPoint]) -> list[Element]:
    """Numbers of some of the blocks, below."""
    step = max(1, math.ceil(len(blocks) / 12))
    return [
        element("text", str(blocks[index].block + 1), x=percent(_x(blocks, index)), y=_HEIGHT - 6,
                text_anchor="middle", class_="tick")
        for index in range(0, len(blocks), step)
    ]  # fmt: skip


def _legend(blocks: Sequence[BlockPoint], estimate: Estimate | None) -> tuple[tuple[str, str], ...]:
    found = [("key-point", "block")]
    if any(block.voided for block in blocks):
        found.append(("key-voided", "voided, does not count"))
    if any(block.stage.is_confirmation for block in blocks):
        found.append(("key-confirming", "confirmation with relocated arms"))
    if estimate is not None:
        found.append(("key-mean", "effect and its interval"))
    return tuple(found)


def _data(blocks: Sequence[BlockPoint]) -> Table:
    rows = (
        (
            *numbers((str(block.block + 1), float(block.block + 1)), (format_effect(block.log_ratio), block.log_ratio)),
            *text_cells(block.stage.value, "; ".join(block.voided)),
        )
        for block in blocks
    )
    return Table(columns=(">block", ">effect", "stage", "voided because"), rows=tuple(rows))
