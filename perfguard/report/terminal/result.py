"""A result as people read it in a terminal: what was found, then the table, the verdict last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.records.estimate import Estimate
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.findings import Finding
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.lines import blame_lines, note_lines, signal_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.findings import render_findings
from perfguard.report.terminal.ops import render_attribution
from perfguard.report.terminal.tables import plain_table
from perfguard.units import format_duration, format_effect, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SIGNS = {
    Outcome.REGRESSED: ("▲", "bold red"),
    Outcome.IMPROVED: ("▼", "bold green"),
    Outcome.UNCHANGED: ("=", "green"),
    Outcome.SAME_CODE: ("≡", "green"),
    Outcome.INCONCLUSIVE: ("?", "yellow"),
    Outcome.INCOMPARABLE: ("≠", "yellow"),
    Outcome.NO_BASELINE: ("∅", "yellow"),
    Outcome.FAILED: ("✗", "bold red"),
    Outcome.DIFFERENT: ("!", "bold yellow"),
    Outcome.ALLOWED: ("△", "yellow"),
}
"""A sign and a colour for each outcome; the word always stands beside them."""

PLAIN = (Outcome.UNCHANGED, Outcome.SAME_CODE)
"""Outcomes whose reason the table tells already."""


def word_of(outcome: Outcome) -> str:
    """`same code`, `no baseline`."""
    return outcome.value.replace("-", " ")


_VERDICT_STYLES = {"pass": "bold green", "measured": "bold", "regressed": "bold red", "failed": "bold red"}


_NUMBERS_WIDTH = 92
"""Columns of the verdict table beside the case id; where both do not fit, each case gets two lines instead."""


def render_result(result: RunResult, *, width: int) -> list[RenderableType]:
    """What to print, in order, for a terminal of `width` columns."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(line), style="dim") for line in _head(result)]
    if result.gate is not None:
        parts.extend(Text(printable(line)) for line in _reasons(result.gate.verdicts, result))
        for attribution in result.attributions:
            parts.extend(render_attribution(attribution))
            parts.extend(_advice(result.findings.get(attribution.case_id, ())))
        parts.extend(_verdicts(result.gate.verdicts, width=width))
    elif result.measured:
        parts.append(_measured_table(result.measured))
    style = _VERDICT_STYLES.get(result.verdict, "bold yellow")
    parts.append(Text(printable(f"{result.verdict}: {describe_all(result.reasons)}"), style=style))
    return parts


def _head(result: RunResult) -> list[str]:
    cpus = ",".join(map(str, result.cpus))
    lines = [
        f"machine    {result.machine} [{result.machine_id}], measured on CPU {cpus}",
        *(
            f"{role:<10} {arm.text}"
            + (f", torch {arm.torch}" if arm.torch else "")
            + (f", Python {arm.python}" if arm.python else "")
            for role, arm in sorted(result.arms.items())
        ),
    ]
    lines.extend(f"note       {note}" for note in note_lines(result))
    lines.append(f"run        {result.folder} ({format_duration(result.duration_s)})")
    return lines


def _advice(findings: Sequence[Finding]) -> list[RenderableType]:
    """What of the difference can be mended, and how; nothing where nothing is known."""
    from rich.text import Text

    heading = Text("advice on what the candidate does and the baseline does not", style="dim")
    return [heading, *render_findings(findings)] if findings else []


def _reasons(verdicts: tuple[Verdict, ...], result: RunResult) -> list[str]:
    """A sentence for every verdict that needs one, for what changed beside wall time, and for what is to blame."""
    lines = []
    for verdict in verdicts:
        further = [*signal_lines(verdict), *blame_lines(verdict, result)]
        if verdict.outcome not in PLAIN or further:
            lines.append(f"{SIGNS[verdict.outcome][0]} {verdict.case_id}: {describe_all(verdict.reasons)}")
        lines += [f"    {line}" for line in further]
    return lines


def _verdicts(verdicts: tuple[Verdict, ...], *, width: int) -> list[RenderableType]:
    longest = max((len(printable(verdict.case_id)) for verdict in verdicts), default=0)
    if longest + _NUMBERS_WIDTH <= width:
        return [_verdict_table(verdicts)]
    return [line for verdict in verdicts for line in _stacked(verdict)]


def _stacked(verdict: Verdict) -> list[RenderableType]:
    """Two lines: outcome and case id, then the numbers."""
    from rich.text import Text

    comparison, estimate = verdict.comparison, verdict.effect
    sign, style = SIGNS[verdict.outcome]
    advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
    head = Text.assemble((f"{sign} {word_of(verdict.outcome)}", style), f"{advisory}  {printable(verdict.case_id)}")
    if estimate is None:
        return [head]
    numbers = (
        f"    {format_effect(estimate.log_ratio)} {format_interval(estimate)}   "
        f"{format_seconds(comparison.baseline_median_s)} → {format_seconds(comparison.candidate_median_s)}   "
        f"n={estimate.blocks}, SD {format_ratio(estimate.block_sd)}"
    )
    return [head, Text(numbers, style="dim")]


def _verdict_table(verdicts: tuple[Verdict, ...]) -> Table:
    table = plain_table("~case", ">n", ">baseline", ">candidate", ">effect", "95 % interval", ">block SD", "verdict")
    for verdict in verdicts:
        table.add_row(*_verdict_row(verdict))
    return table


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    from rich.markup import escape

    comparison = verdict.comparison
    sign, style = SIGNS[verdict.outcome]
    advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
    estimate = verdict.effect
    return (
        escape(printable(verdict.case_id)),
        str(estimate.blocks) if estimate else "-",
        format_seconds(comparison.baseline_median_s),
        format_seconds(comparison.candidate_median_s),
        format_effect(estimate.log_ratio) if estimate else "-",
        escape(format_interval(estimate)),
        format_ratio(estimate.block_sd) if estimate else "-",
        f"[{style}]{sign} {word_of(verdict.outcome)}[/]{advisory}",
    )


def format_interval(estimate: Estimate | None) -> str:
    """`[+1.2 %, +3.4 %]`; `-` where it is unknown."""
    if estimate is None or not math.isfinite(estimate.interval.lower):
        return "-"
    return f"[{format_effect(estimate.interval.lower)}, {format_effect(estimate.interval.upper)}]"


def _measured_table(measured: tuple[CaseMeasured, ...]) -> Table:
    from rich.markup import escape

    table = plain_table("~case", ">rounds", ">median", ">between rounds", ">within a round", ">loops", "~")
    for case in measured:
        table.add_row(
            escape(printable(case.case_id)),
            str(case.rounds),
            format_seconds(case.median_s),
            format_ratio(case.between_sd_ratio),
            format_ratio(case.within_sd_ratio),
            str(case.inner_loops or "-"),
            escape(printable(f"✗ {describe(case.problem)}")) if case.problem else "",
        )
    return table
