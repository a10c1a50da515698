"""A result as people read it in a terminal: what was found, then the table, the verdict last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfguard.records.estimate import Estimate
from perfguard.records.facts import Severity
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.spec import Gating
from perfguard.records.steps.findings import Finding
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.lines import blame_lines, names_in, note_lines, signal_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.findings import render_findings
from perfguard.report.terminal.ops import render_attribution
from perfguard.report.terminal.tables import FittedTable, column_width, fit, plain_table
from perfguard.units import format_duration, format_effect, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

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


def render_result(result: RunResult, *, width: int, least: Severity = Severity.NOTABLE) -> list[RenderableType]:
    """What to print, in order.

    Args:
        result: What was found.
        width: Columns of the terminal.
        least: Notes that matter less are left out.
    """
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(line), style="dim") for line in _head(result, least)]
    names = names_in(result)
    if result.gate is not None:
        parts.extend(Text(printable(line)) for line in _reasons(result.gate.verdicts, result, names))
        for attribution in result.attributions:
            parts.extend(render_attribution(attribution, name=names.get(attribution.case_id)))
            parts.extend(_advice(result.findings.get(attribution.case_id, ())))
        parts.extend(_verdicts(result.gate.verdicts, names, width=width))
    elif result.measured:
        parts.extend(_measured(result.measured, names))
    style = _VERDICT_STYLES.get(result.verdict, "bold yellow")
    parts.append(Text(printable(f"{result.verdict}: {describe_all(result.reasons)}"), style=style))
    return parts


def _head(result: RunResult, least: Severity) -> list[str]:
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
    lines.extend(f"note       {note}" for note in note_lines(result, least))
    lines.append(f"run        {result.folder} ({format_duration(result.duration_s)})")
    return lines


def _advice(findings: Sequence[Finding]) -> list[RenderableType]:
    """What of the difference can be mended, and how; nothing where nothing is known."""
    from rich.text import Text

    heading = Text("advice on what the candidate does and the baseline does not", style="dim")
    return [heading, *render_findings(findings)] if findings else []


def _reasons(verdicts: tuple[Verdict, ...], result: RunResult, names: Mapping[str, str]) -> list[str]:
    """A sentence for every verdict that needs one, for what changed beside wall time, and for what is to blame."""
    lines = []
    for verdict in verdicts:
        further = [*signal_lines(verdict), *blame_lines(verdict, result)]
        if verdict.outcome not in PLAIN or further:
            lines.append(f"{SIGNS[verdict.outcome][0]} {names[verdict.case_id]}: {describe_all(verdict.reasons)}")
        lines += [f"    {line}" for line in further]
    return lines


def _verdicts(verdicts: tuple[Verdict, ...], names: Mapping[str, str], *, width: int) -> list[RenderableType]:
    if column_width([printable(name) for name in names.values()]) + _NUMBERS_WIDTH <= width:
        return [_verdict_table(verdicts, names)]
    return [line for verdict in verdicts for line in _stacked(verdict, names[verdict.case_id], width)]


def _stacked(verdict: Verdict, name: str, width: int) -> list[RenderableType]:
    """Outcome and case, then the numbers: in one line, or two where the terminal is narrow."""
    from rich.text import Text

    comparison, estimate = verdict.comparison, verdict.effect
    outcome, style = _outcome(verdict)
    room = max(width - column_width([outcome]) - 2, 8)
    head = Text.assemble((outcome, style), f"  {fit(printable(name), room)}")
    if estimate is None:
        return [head]
    effect = f"{format_effect(estimate.log_ratio)} {format_interval(estimate)}"
    times = f"{format_seconds(comparison.baseline_median_s)} → {format_seconds(comparison.candidate_median_s)}"
    rest = f"{times}   n={estimate.blocks}, SD {format_ratio(estimate.block_sd)}"
    whole = f"    {effect}   {rest}"
    lines = [whole] if column_width([whole]) <= width else [f"    {effect}", f"    {rest}"]
    return [head, *(Text(line, style="dim") for line in lines)]


def _outcome(verdict: Verdict) -> tuple[str, str]:
    """Sign, word and whether it counts, with their style."""
    sign, style = SIGNS[verdict.outcome]
    advisory = " (advisory)" if verdict.gating is Gating.ADVISORY else ""
    return f"{sign} {word_of(verdict.outcome)}{advisory}", style


def _verdict_table(verdicts: tuple[Verdict, ...], names: Mapping[str, str]) -> FittedTable:
    table = plain_table("~case", ">n", ">baseline", ">candidate", ">effect", "95 % interval", ">block SD", "verdict")
    for verdict in verdicts:
        table.add_row(*_verdict_row(verdict, names[verdict.case_id]))
    return table


def _verdict_row(verdict: Verdict, name: str) -> tuple[str | Text, ...]:
    from rich.text import Text

    comparison = verdict.comparison
    estimate = verdict.effect
    return (
        name,
        str(estimate.blocks) if estimate else "-",
        format_seconds(comparison.baseline_median_s),
        format_seconds(comparison.candidate_median_s),
        format_effect(estimate.log_ratio) if estimate else "-",
        format_interval(estimate),
        format_ratio(estimate.block_sd) if estimate else "-",
        Text(*_outcome(verdict)),
    )


def format_interval(estimate: Estimate | None) -> str:
    """`[+1.2 %, +3.4 %]`; `-` where it is unknown."""
    if estimate is None or not math.isfinite(estimate.interval.lower):
        return "-"
    return f"[{format_effect(estimate.interval.lower)}, {format_effect(estimate.interval.upper)}]"


def _measured(measured: tuple[CaseMeasured, ...], names: Mapping[str, str]) -> list[RenderableType]:
    """The table, then what is wrong with single cases."""
    from rich.text import Text

    table = plain_table("~case", ">rounds/3", ">median", ">between rounds", ">within a round/1", ">loops/2")
    for case in measured:
        table.add_row(
            names[case.case_id],
            str(case.rounds),
            format_seconds(case.median_s),
            format_ratio(case.between_sd_ratio),
            format_ratio(case.within_sd_ratio),
            str(case.inner_loops or "-"),
        )
    problems = [f"✗ {names[case.case_id]}: {describe(case.problem)}" for case in measured if case.problem]
    return [table, *(Text(printable(line)) for line in problems)]
