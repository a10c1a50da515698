"""What was measured of cases: the forest of effects, paired blocks, samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfguard.records.estimate import Estimate
from perfguard.report.html.charts import (
    Cell,
    Chart,
    LinearAxis,
    RatioAxis,
    Table,
    cells,
    gridlines,
    height_of,
    levels,
    mark_cell,
    near_axis,
    tick_text,
)
from perfguard.report.html.content import BlockPoint, CaseEvidence
from perfguard.report.html.effect_bars import Ends, common_axis, effect_bar, effect_ticks, scale_text
from perfguard.report.html.svg import Element, element, percent, picture, stretched
from perfguard.report.html.tables import name_cell
from perfguard.report.rows import CaseRow
from perfguard.report.scales import bounds_of, ratio_of
from perfguard.report.shown import Number
from perfguard.units import format_count, format_effect, format_seconds


def forest(rows: Sequence[CaseRow], links: Mapping[str, str]) -> Chart | None:
    """A row a case, its effect and interval on one axis; None where no case has an effect."""
    known = [ends for row in rows if (ends := _ends(row.verdict.effect))]
    if not known:
        return None
    axis = common_axis(known)
    drawn = (
        cells(
            name_cell(row.verdict.case_id, row.name, links),
            Cell(content=_bar(row, axis), class_="picture"),
            Cell(content=row.effect_text or "-", class_="num"),
            mark_cell(row.mark, row.outcome),
        )
        for row in rows
    )
    return Chart(
        kind="forest",
        title="How big is it?",
        figure=Table(
            columns=("case", "candidate against baseline", ">effect", "verdict"),
            rows=(*drawn, cells("", Cell(content=effect_ticks(axis), class_="axis"), "", "")),
            keys=(*(row.verdict.case_id for row in rows), ""),
            caption="Effect of each case with its interval",
            class_="forest",
        ),
        legend=(("key-interval", "effect and 95 % interval"), ("key-margin", "within the case's margin")),
        note=f"Right is slower{scale_text(axis)}. A case is red only when it is significantly slower than its margin.",
    )


def _bar(row: CaseRow, axis: RatioAxis) -> Element:
    label = f"{row.verdict.case_id}: {row.effect_text or '-'}, {row.mark.word}"
    margin = row.verdict.comparison.margin_ratio
    return effect_bar(label, _ends(row.verdict.effect), axis, row.mark.class_, margin_ratio=margin)


def _ends(estimate: Estimate | None) -> Ends | None:
    return (estimate.log_ratio, estimate.interval.lower, estimate.interval.upper) if estimate else None


_BLOCKS_HEIGHT, _BLOCKS_TOP, _BLOCKS_FLOOR = 200, 18, 176


def pairs(blocks: Sequence[BlockPoint], estimate: Estimate | None) -> Chart | None:
    """Paired differences in the order of measuring, with what they come to; None where nothing is paired."""
    if not blocks:
        return None
    ends = _ends(estimate) or ()
    axis = near_axis(
        [*(ratio_of(block.log_ratio) for block in blocks), *(ratio_of(end) for end in ends if math.isfinite(end))]
    )
    has_zero = axis.low < 0 < axis.high
    zero = _block_y(axis, 0)
    mean = map(ratio_of, ends) if all(map(math.isfinite, ends)) else ()
    parts = [
        *_mean(*(_block_y(axis, ratio) for ratio in mean)),
        *levels([(_block_y(axis, tick), tick_text(tick)) for tick in axis.ticks(4)]),
        *([element("line", x1="0%", x2="100%", y1=zero, y2=zero, class_="zero")] if has_zero else ()),
        *_stages(blocks),
        *(_block_point(block, _block_x(blocks, index), axis) for index, block in enumerate(blocks)),
        *(
            element("text", str(blocks[index].block + 1), x=percent(_block_x(blocks, index)), y=_BLOCKS_HEIGHT - 6,
                    text_anchor="middle", class_="tick")
            for index in range(0, len(blocks), max(1, math.ceil(len(blocks) / 12)))
        ),
    ]  # fmt: skip
    voided = sum(bool(block.voided) for block in blocks)
    is_confirmed = any(block.stage.is_confirmation for block in blocks)
    legend = (
        ("key-point", "block"),
        ("key-voided", "voided, does not count" if voided else ""),
        ("key-confirming", "confirmation with relocated arms" if is_confirmed else ""),
        ("key-mean", "effect and its interval" if estimate else ""),
    )
    rows = (
        cells(
            Number.whole(block.block + 1),
            Number.of(format_effect, block.log_ratio),
            block.stage.value,
            "; ".join(block.voided),
        )
        for block in blocks
    )
    return Chart(
        kind="pairs",
        title="Is it real? Each block on its own",
        figure=picture(
            f"Effect of {format_count(len(blocks), 'block')} in order, {voided} of them voided", _BLOCKS_HEIGHT, parts
        ),
        legend=tuple((sign, words) for sign, words in legend if words),
        note="A block is a pair of fresh processes; above zero the candidate was slower. Drift, warm-up and outliers "
        "would show here. The more a block's samples scatter, the less it counts."
        + ("" if has_zero else " Zero lies outside of this picture."),
        data=Table(columns=(">block", ">effect", "stage", "voided because"), rows=tuple(rows)),
    )


def _block_y(axis: LinearAxis, ratio: float) -> float:
    return height_of(axis, ratio, _BLOCKS_TOP, _BLOCKS_FLOOR)


def _block_x(blocks: Sequence[BlockPoint], index: int) -> float:
    """Points begin right of the axis' words."""
    return 0.09 + 0.89 * (index + 0.5) / len(blocks)


def _mean(*heights: float) -> list[Element]:
    """The interval as a band, the mean as a line; nothing where they are unknown."""
    if not heights:
        return []
    middle, lower, upper = heights
    return [
        element("rect", x="0%", width="100%", y=upper, height=max(1.0, lower - upper), class_="band"),
        element("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="mean"),
    ]


def _block_point(block: BlockPoint, share: float, axis: LinearAxis) -> Element:
    x, y = percent(share), _block_y(axis, ratio_of(block.log_ratio))
    why = f", voided: {'; '.join(block.voided)}" if block.voided else ""
    title = element("title", f"block {block.block + 1} ({block.stage.value}): {format_effect(block.log_ratio)}{why}")
    if block.voided or block.stage.is_confirmation:
        sign, class_ = ("\N{MULTIPLICATION SIGN}", "voided") if block.voided else ("◇", "confirming")
        return element("text", title, sign, x=x, y=y + 5, text_anchor="middle", class_=class_)
    return element("circle", title, cx=x, cy=y, r=4, class_=f"point {'slower' if block.log_ratio > 0 else 'faster'}")


def _stages(blocks: Sequence[BlockPoint]) -> Iterable[Element]:
    """A line and a word where another stage begins."""
    for index in range(1, len(blocks)):
        if blocks[index].stage is not blocks[index - 1].stage:
            x = percent((_block_x(blocks, index - 1) + _block_x(blocks, index)) / 2)
            yield element("line", x1=x, x2=x, y1=4, y2=_BLOCKS_FLOOR, class_="stage")
            yield element("text", f" {blocks[index].stage.value} ▸", x=x, y=12, class_="tick")


_SAMPLES_HEIGHT, _SAMPLES_TOP, _SAMPLES_FLOOR = 210, 16, 184
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_STEPS = 120  # More steps of a curve cannot be seen, and a page has two curves for each of its cases


def ecdf(evidence: CaseEvidence) -> Chart | None:
    """The share of each arm's samples that took at most so long; None where nothing was timed.

    The outermost hundredth of the samples is cut off.
    """
    arms = {
        name: sorted(filter(math.isfinite, values))
        for name, values in (("baseline", evidence.baseline_s), ("candidate", evidence.candidate_s))
    }
    arms = {name: values for name, values in arms.items() if values}
    together = sorted(value for values in arms.values() for value in values)
    if not together:
        return None
    tail = len(together) // 100
    low, high = bounds_of(together[tail : len(together) - tail])
    axis = LinearAxis(low=low, high=high)
    shares = [
        (_SAMPLES_FLOOR - share * (_SAMPLES_FLOOR - _SAMPLES_TOP), f"{share * 100:.0f} %") for share in (0.0, 0.5, 1.0)
    ]
    parts = [
        *gridlines([(axis.at(tick), format_seconds(tick)) for tick in axis.ticks(6)], _SAMPLES_TOP, _SAMPLES_FLOOR),
        *levels(shares),
        *(
            stretched(_curve(values, axis), _SAMPLES_TOP, _SAMPLES_FLOOR, class_=f"curve {name}")
            for name, values in arms.items()
        ),
    ]  # fmt: skip
    counts = {name: format_count(len(values), "sample") for name, values in arms.items()}
    said = " and ".join(f"{count} of the {name}" for name, count in counts.items())
    rows = (
        tuple(
            Cell(content=text, class_="num")
            for text in (f"{share * 100:.0f} %", *(format_seconds(_quantile(each, share)) for each in arms.values()))
        )
        for share in _QUANTILES
    )
    return Chart(
        kind="ecdf",
        title="How did the whole distribution move?" if "baseline" in arms else "How do the times scatter?",
        figure=picture(f"Share of samples that were at most as long: {said}", _SAMPLES_HEIGHT, parts),
        legend=tuple((f"key-{name}", f"{name}, {count}") for name, count in counts.items()),
        note="Height: the share of samples that took at most so long. Curves apart from bottom to top: every sample "
        "moved. Curves that touch at one end: only some did.",
        data=Table(columns=(">of the samples took at most", *(f">{name}" for name in arms)), rows=tuple(rows)),
    )


def _curve(ordered: Sequence[float], axis: LinearAxis) -> str:
    """Steps from 0 to 100 % in a box of 1000 by 1000."""
    step = max(1, math.ceil(len(ordered) / _MOST_STEPS))
    steps = (
        f"H{axis.at(ordered[index]) * 1000:.0f}V{1000 - (index + 1) / len(ordered) * 1000:.0f}"
        for index in [*range(step - 1, len(ordered) - 1, step), len(ordered) - 1]
    )
    return f"M0 1000{''.join(steps)}H1000"


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
