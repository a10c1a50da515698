"""A result as people read it in a terminal: what was found, then the table, the verdict last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perfguard.records.facts import Severity
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.report.lines import blame_lines, names_in, note_lines, signal_lines
from perfguard.report.messages.catalog import describe_all
from perfguard.report.rows import PLAIN, CaseRow, case_rows, measured_rows
from perfguard.report.scaling import scaling_tables
from perfguard.report.terminal.findings import render_findings
from perfguard.report.terminal.ops import render_attribution
from perfguard.report.terminal.tables import column_width, fit, plain_table, texts
from perfguard.units import format_duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_VERDICT_STYLES = {"pass": "bold green", "measured": "bold", "regressed": "bold red", "failed": "bold red"}


_NUMBERS_WIDTH = 92
"""Columns of the verdict table beside the case id; where both do not fit, each case gets two lines instead."""


def render_result(result: RunResult, *, width: int, least: Severity = Severity.NOTABLE) -> list[RenderableType]:
    """What to print, in order; notes below `least` are left out."""
    parts = texts(*_head(result, least), style="dim")
    names = names_in(result)
    if result.gate is not None:
        rows = case_rows(result.gate.verdicts, names)
        parts.extend(texts(*_reasons(rows, result)))
        for attribution in result.attributions:
            parts.extend(render_attribution(attribution, name=names.get(attribution.case_id)))
            if findings := result.findings.get(attribution.case_id):
                parts.extend(texts("advice on what the candidate does and the baseline does not", style="dim"))
                parts.extend(render_findings(findings))
        parts.extend(_verdicts(rows, names.values(), width=width))
    elif result.measured:
        parts.extend(_measured(result.measured))
        for table in scaling_tables(result.scaling):
            heads = [">" + head for head in table.heads]
            parts.extend([*texts(table.title), plain_table(*heads, rows=table.rows)])
    style = _VERDICT_STYLES.get(result.verdict, "bold yellow")
    return [*parts, *texts(f"{result.verdict}: {describe_all(result.reasons)}", style=style)]


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


def _reasons(rows: Sequence[CaseRow], result: RunResult) -> list[str]:
    """A sentence for every verdict that needs one, for what changed beside wall time, and for culprits."""
    lines = []
    for row in rows:
        further = [*signal_lines(row.verdict), *blame_lines(row.verdict, result)]
        if row.verdict.outcome not in PLAIN or further:
            lines.append(f"{row.mark.sign} {row.name}: {describe_all(row.verdict.reasons)}")
        lines += [f"    {line}" for line in further]
    return lines


def _verdicts(rows: Sequence[CaseRow], names: Iterable[str], *, width: int) -> list[RenderableType]:
    from rich.text import Text

    if column_width([printable(name) for name in names]) + _NUMBERS_WIDTH > width:
        return [line for row in rows for line in _stacked(row, width)]
    cells = (
        (r.name, r.blocks, r.baseline, r.candidate, r.effect, r.interval, r.block_sd, Text(r.outcome, r.mark.style))
        for r in rows
    )
    heads = ("~case", ">n", ">baseline", ">candidate", ">effect", "95 % interval", ">block SD", "verdict")
    return [plain_table(*heads, rows=cells)]


def _stacked(row: CaseRow, width: int) -> list[RenderableType]:
    """Outcome and case, then the numbers: in one line, or two where the terminal is narrow."""
    from rich.text import Text

    room = max(width - column_width([row.outcome]) - 2, 8)
    head = Text.assemble((row.outcome, row.mark.style), f"  {fit(printable(row.name), room)}")
    if row.verdict.effect is None:
        return [head]
    rest = f"{row.times}   n={row.blocks.text}, SD {row.block_sd.text}"
    whole = f"    {row.effect_text}   {rest}"
    lines = [whole] if column_width([whole]) <= width else [f"    {row.effect_text}", f"    {rest}"]
    return [head, *texts(*lines, style="dim")]


def _measured(measured: Sequence[CaseMeasured]) -> list[RenderableType]:
    """The table, then what is wrong with single cases."""
    rows = measured_rows(measured)
    cells = ((row.name, row.rounds, row.median, row.between, row.within, row.loops) for row in rows)
    heads = ("~case", ">rounds/3", ">median", ">between rounds", ">within a round/1", ">loops/2")
    problems = texts(*(f"✗ {row.name}: {row.problem}" for row in rows if row.problem))
    return [plain_table(*heads, rows=cells), *problems]
