"""A calibration and a plan as people read them: what holds, then the table, what to do last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from perfguard.records.calibration import CalibratedCase, CalibrationSummary, SuitePlan
from perfguard.records.case_names import short_names
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tables import column_width, plain_table, texts
from perfguard.units import format_duration, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_NUMBERS_WIDTH = 112
"""Columns of the table beside the case id; where both do not fit, each case gets lines of its own."""


def render_calibration(summary: CalibrationSummary, *, width: int) -> list[RenderableType]:
    """The table of cases, with what it was made from."""
    names = short_names(case.case_id for case in summary.cases)
    rows = [_row(case, names[case.case_id]) for case in summary.cases]
    body: list[RenderableType]
    if column_width([printable(name) for name in names.values()]) + _NUMBERS_WIDTH <= width:
        minutes = [given for given, _ in summary.cases[0].mde] if summary.cases else []
        table = plain_table(
            "~case", ">blocks", ">block SD", "95 % interval", ">ICC", ">lag 1", ">floor", ">margin",
            *(f">MDE {given} min" if given == minutes[0] else f">{given} min" for given in minutes),
            rows=((*row[:-1], *row.mde) for row in rows),
        )  # fmt: skip
        body = [table]
    else:
        body = texts(*itertools.chain.from_iterable(map(_stacked, summary.cases, rows)))
    head, legend = _head(summary), _legend(summary, names)
    return [*texts(*head, style="dim"), *body, *texts(*legend, style="dim")]


def render_plan(plan: SuitePlan, *, width: int) -> list[RenderableType]:
    """What each case needs, and what the budget makes of it."""
    from rich.text import Text

    del width  # the reasons wrap by themselves
    names = short_names(case.case_id for case in plan.cases)
    wanted = f"to find {format_ratio(plan.detect_ratio)} with {100 * plan.power:.4g} % power"
    head = (
        f"suite {plan.suite}, from {describe(plan.source)}",
        f"{wanted}; a budget of {format_duration(plan.budget_s)} holds {plan.blocks_within} blocks of all cases",
    )
    rows = (
        (
            names[case.case_id],
            format_ratio(case.block_sd),
            format_ratio(case.margin_ratio),
            "-" if case.blocks is None else str(case.blocks),
            "-" if case.minutes is None else f"{case.minutes:.1f}",
            Text("gating", style="green") if case.gating else Text("advisory", style="yellow"),
        )
        for case in plan.cases
    )
    return [
        *texts(*head, style="dim"),
        plain_table("~case", ">block SD/1", ">margin/3", ">blocks/2", ">minutes", "", rows=rows),
        *texts(*_demotions(plan, names)),
    ]


def _head(summary: CalibrationSummary) -> list[str]:
    first, latest = ((time or "")[:10] for time in (summary.first_at, summary.latest_at))
    span = latest if first == latest else f"{first} to {latest}"
    counted, relocated, pace = summary.false_alarms.gates, summary.placebo_gates, summary.pace
    start = f", {format_seconds(pace.startup_s)} of it to start the workers" if pace.knows_cases else ""
    beside = f"{format_seconds(pace.overhead_s)} beside them"
    limit = f"; relocated arms differ by an SD of at most {format_ratio(summary.placebo_limit)}" if relocated else ""
    return [
        f"gates      {summary.gates}, {counted} of them reached a verdict, {relocated} had relocated arms; {span}",
        f"pace       {format_seconds(pace.block_s)} a block of all cases{start}; {beside}",
        f"margin     {format_ratio(summary.margin_ratio)}{limit}",
    ]


def _legend(summary: CalibrationSummary, names: Mapping[str, str]) -> list[str]:
    others = (
        "the other cases leave as they do in A/A gates"
        if summary.pace.knows_cases
        else "all cases measured to the end, because no gate recorded what single cases take"
    )
    lines = [
        f"MDE: slowdown of a case alone at which a gate of so many minutes ends red with 80 % power; {others}",
        "ICC: near 1 only more blocks help, near 0 more samples would; lag 1: correlation of neighbouring blocks",
    ]
    notable = [names[case.case_id] for case in summary.cases if case.is_autocorrelated]
    if notable:
        lines.append(
            f"neighbouring blocks are not independent (outside the 95 % band of chance): {', '.join(notable)}; with "
            "many cases one in twenty is expected to be"
        )
    if not summary.placebo_gates:
        lines.append("no gate had relocated arms, so no placebo floor is known: run `perfguard calibrate --placebo`")
    return lines


class _Row(NamedTuple):
    """A case in words, by column."""

    name: str
    blocks: str
    block_sd: str
    interval: str
    icc: str
    lag: str
    floor: str
    margin: str
    mde: tuple[str, ...]


def _row(case: CalibratedCase, name: str) -> _Row:
    lower, upper = case.block_sd_interval.lower, case.block_sd_interval.upper
    return _Row(
        name=name if case.gating else f"{name} (advisory)",
        blocks=str(case.blocks),
        block_sd=format_ratio(case.block_sd),
        interval=f"[{format_ratio(lower)}, {format_ratio(upper)}]" if math.isfinite(upper) else "-",
        icc=_number(case.intraclass_correlation),
        lag=_number(case.autocorrelation) + (" !" if case.is_autocorrelated else ""),
        floor=format_ratio(case.placebo_floor_ratio) if case.placebo_gates else "-",
        margin=format_ratio(case.margin_ratio),
        mde=tuple(_effect(mde) for _, mde in case.mde),
    )


def _stacked(case: CalibratedCase, row: _Row) -> list[str]:
    floor = f"floor {row.floor}, " if case.placebo_gates else ""
    effects = ", ".join(f"{given} min {mde}" for (given, _), mde in zip(case.mde, row.mde, strict=True))
    return [
        row.name,
        f"    block SD {row.block_sd} {row.interval} in {row.blocks} blocks, ICC {row.icc}, lag 1 {row.lag}",
        f"    {floor}margin {row.margin}, MDE {effects}",
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _effect(mde_ratio: float) -> str:
    if not math.isfinite(mde_ratio):
        return "-"
    return "> 100 %" if mde_ratio > 1 else format_ratio(mde_ratio)


def _demotions(plan: SuitePlan, names: Mapping[str, str]) -> list[str]:
    lines = [f"{names[case.case_id]} is advisory: {describe(case.reason)}" for case in plan.cases if not case.gating]
    if plan.minutes is None:
        wanted = "ask for a larger effect, or raise what binds: --budget, or the project's max_blocks"
        return [*lines, f"no case can find this; {wanted}"]
    kept = sum(case.gating for case in plan.cases)
    return [*lines, f"{kept} of {len(plan.cases)} cases gate; the suite needs {plan.minutes:.1f} minutes"]
