"""A calibration and a plan as people read them: what holds, then the table, what to do last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfguard.records.calibration import CalibratedCase, CalibrationSummary, Pace, PlannedCase, SuitePlan
from perfguard.records.case_names import short_names
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tables import FittedTable, column_width, plain_table
from perfguard.units import format_duration, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_NUMBERS_WIDTH = 112
"""Columns of the table beside the case id; where both do not fit, each case gets lines of its own."""
_UNCONFIRMED = "leave the confirmation of flags out; with it, slowdowns of that size are found less often"


def render_calibration(summary: CalibrationSummary, *, width: int) -> list[RenderableType]:
    """The table of cases, with what it was made from."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(line, style="dim") for line in _head(summary)]
    names = short_names(case.case_id for case in summary.cases)
    longest = column_width([printable(name) for name in names.values()])
    if longest + _NUMBERS_WIDTH <= width:
        parts.append(_case_table(summary, names))
    else:
        parts.extend(Text(printable(line)) for case in summary.cases for line in _stacked(case, names[case.case_id]))
    parts.extend(Text(line, style="dim") for line in _legend(summary, names))
    return parts


def render_plan(plan: SuitePlan, *, width: int) -> list[RenderableType]:
    """What each case needs, and what the budget makes of it."""
    from rich.text import Text

    del width  # the reasons wrap by themselves
    parts: list[RenderableType] = [
        Text(printable(f"suite {plan.suite}, from {describe(plan.source)}"), style="dim"),
        Text(
            f"to find {format_ratio(plan.detect_ratio)} with {100 * plan.power:.4g} % power; a budget of "
            f"{format_duration(plan.budget_s)} holds {plan.blocks_within} blocks of all cases",
            style="dim",
        ),
        Text(f"blocks and minutes {_UNCONFIRMED}", style="dim"),
        _plan_table(plan),
    ]
    parts.extend(Text(printable(line)) for line in _demotions(plan))
    return parts


def _head(summary: CalibrationSummary) -> list[str]:
    first, latest = ((time or "")[:10] for time in (summary.first_at, summary.latest_at))
    span = latest if first == latest else f"{first} to {latest}"
    counted, relocated = summary.false_alarms.gates, summary.placebo_gates
    return [
        f"gates      {summary.gates}, {counted} of them reached a verdict, {relocated} had relocated arms; {span}",
        _pace(summary.pace),
    ]


def _pace(pace: Pace) -> str:
    start = f", {format_seconds(pace.startup_s)} of it to start the workers" if pace.knows_cases else ""
    beside = f"{format_seconds(pace.overhead_s)} beside them"
    return f"pace       {format_seconds(pace.block_s)} a block of all cases{start}; {beside}"


def _legend(summary: CalibrationSummary, names: Mapping[str, str]) -> list[str]:
    lines = [
        f"MDE: slowdown of a case alone that a gate of so many minutes finds with 80 % power; {_others(summary.pace)}",
        f"MDEs {_UNCONFIRMED}",
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
    return [printable(line) for line in lines]


def _others(pace: Pace) -> str:
    if pace.knows_cases:
        return "the other cases leave as they do in A/A gates"
    return "all cases measured to the end, because no gate recorded what single cases take"


def _case_table(summary: CalibrationSummary, names: Mapping[str, str]) -> FittedTable:
    minutes = [given for given, _ in summary.cases[0].mde] if summary.cases else []
    table = plain_table(
        "~case", ">blocks", ">block SD", "95 % interval", ">ICC", ">lag 1", ">floor", ">margin",
        *(f">MDE {given} min" if given == minutes[0] else f">{given} min" for given in minutes),
    )  # fmt: skip
    for case in summary.cases:
        table.add_row(*_case_row(case, names))
    return table


def _case_row(case: CalibratedCase, names: Mapping[str, str]) -> tuple[str, ...]:
    advisory = "" if case.gating else " (advisory)"
    return (
        names[case.case_id] + advisory,
        str(case.blocks),
        format_ratio(case.block_sd),
        _interval(case),
        _number(case.intraclass_correlation),
        _lag(case),
        format_ratio(case.placebo_floor_ratio) if case.placebo_gates else "-",
        format_ratio(case.margin_ratio),
        *(_effect(mde) for _, mde in case.mde),
    )


def _stacked(case: CalibratedCase, name: str) -> list[str]:
    advisory = "" if case.gating else " (advisory)"
    floor = f"floor {format_ratio(case.placebo_floor_ratio)}, " if case.placebo_gates else ""
    effects = ", ".join(f"{given} min {_effect(mde)}" for given, mde in case.mde)
    shape = f"ICC {_number(case.intraclass_correlation)}, lag 1 {_lag(case)}"
    return [
        f"{name}{advisory}",
        f"    block SD {format_ratio(case.block_sd)} {_interval(case)} in {case.blocks} blocks, {shape}",
        f"    {floor}margin {format_ratio(case.margin_ratio)}, MDE {effects}",
    ]


def _interval(case: CalibratedCase) -> str:
    found = case.block_sd_interval
    return f"[{format_ratio(found.lower)}, {format_ratio(found.upper)}]" if math.isfinite(found.upper) else "-"


def _lag(case: CalibratedCase) -> str:
    mark = " !" if case.is_autocorrelated else ""
    return _number(case.autocorrelation) + mark


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _effect(mde_ratio: float) -> str:
    if not math.isfinite(mde_ratio):
        return "-"
    return "> 100 %" if mde_ratio > 1 else format_ratio(mde_ratio)


def _plan_table(plan: SuitePlan) -> FittedTable:
    table = plain_table("~case", ">block SD/1", ">margin/3", ">blocks/2", ">minutes", "")
    names = short_names(case.case_id for case in plan.cases)
    for case in plan.cases:
        table.add_row(*_plan_row(case, names[case.case_id]))
    return table


def _plan_row(case: PlannedCase, name: str) -> tuple[str | Text, ...]:
    from rich.text import Text

    return (
        name,
        format_ratio(case.block_sd),
        format_ratio(case.margin_ratio),
        "-" if case.blocks is None else str(case.blocks),
        "-" if case.minutes is None else f"{case.minutes:.1f}",
        Text("gating", style="green") if case.gating else Text("advisory", style="yellow"),
    )


def _demotions(plan: SuitePlan) -> list[str]:
    names = short_names(case.case_id for case in plan.cases)
    lines = [f"{names[case.case_id]} is advisory: {describe(case.reason)}" for case in plan.cases if not case.gating]
    kept = sum(case.gating for case in plan.cases)
    if plan.minutes is None:
        lines.append(
            "no case can find this; ask for a larger effect, or raise what binds: --budget, or the project's max_blocks"
        )
    else:
        lines.append(f"{kept} of {len(plan.cases)} cases gate; the suite needs {plan.minutes:.1f} minutes")
    return lines
