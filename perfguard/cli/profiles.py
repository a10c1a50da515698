"""Profiles on stdout or into a file, in every format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfguard.codec import to_json
from perfguard.errors import StoreError, UsageError
from perfguard.records.steps.profile import ProfiledCase, ProfileReport
from perfguard.report.messages.catalog import describe
from perfguard.store.whole_files import write_whole
from perfguard.units import format_count, format_seconds, format_share, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_report(report: ProfileReport, output_format: str, output: Path | None, *, rows: int) -> None:
    """Print a report, or write it to a file.

    Raises:
        UsageError: The file cannot be written, or the format holds one case only.
    """
    if output_format == "table" and output is None:
        from perfguard.cli.output import print_parts

        print_parts(lambda _: _rendered(report, rows))
        return
    text = _text(report, output_format, rows)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        write_whole(output, (text if text.endswith("\n") else text + "\n").encode())
    except StoreError as error:
        raise UsageError(f"{error}; the report is in {report.folder}") from error
    click.echo(f"written to {output}", err=True)


def _text(report: ProfileReport, output_format: str, rows: int) -> str:
    from perfguard.integrations.formats.profiles import to_collapsed, to_csv, to_speedscope

    if output_format == "json":
        return to_json(report, indent=1)
    if output_format == "table":
        return _plain(_rendered(report, rows))
    if len(report.cases) > 1:
        raise UsageError(
            f"{output_format} holds one case, and {len(report.cases)} were profiled; choose one, or use --format json"
        )
    (case,) = report.cases
    if output_format == "csv":
        return to_csv(case.ops)
    return to_collapsed(case.ops) if output_format == "collapsed" else to_speedscope(case.ops, name=case.case_id)


def _rendered(report: ProfileReport, rows: int) -> list[RenderableType]:
    from rich.text import Text

    cpus = ",".join(map(str, report.cpus))
    parts: list[RenderableType] = [
        Text(f"machine    {report.machine} [{report.machine_id}], on CPU {cpus}, torch {report.torch}", style="dim"),
        *(Text(printable(f"note       {describe(note)}"), style="dim") for note in report.notes),
        Text(f"run        {report.folder}", style="dim"),
    ]
    for case in report.cases:
        parts += _case(case, rows)
    for case_id, reason in report.problems.items():
        sentence, *detail = reason.splitlines()
        parts.append(Text(printable(f"✗ {case_id}: {sentence}"), style="bold red"))
        parts += [Text(f"  {printable(line)}", style="dim") for line in detail]
    return parts


def _case(case: ProfiledCase, rows: int) -> Sequence[RenderableType]:
    from rich.text import Text

    from perfguard.report.terminal.findings import render_findings
    from perfguard.report.terminal.ops import render_breakdown
    from perfguard.report.terminal.projection import render_projection

    projection = render_projection(case.projection, rows=rows) if case.projection is not None else []
    return [
        Text(printable(case.case_id), style="bold"),
        Text(_step_line(case)),
        *(Text(printable(f"! {note}"), style="yellow") for note in case.notes),
        *render_breakdown(case.breakdown, case.ops, rows=rows, has_library_calls=case.census is not None),
        *projection,
        *render_findings(case.findings),
    ]


def _step_line(case: ProfiledCase) -> str:
    from perfguard.profile.op_times.typical_steps import leaves_steps_out

    of = f"{format_count(case.steps, 'step')} in {case.processes} process{'' if case.processes == 1 else 'es'}"
    if case.step_s is None or case.overhead_ratio is None:
        return f"a step takes {format_seconds(case.profiled_step_s)} with the profiler ({of}); without it: not measured"
    told = ", the middle third of which is told" if leaves_steps_out(case.steps // case.processes) else ""
    more = "less" if case.overhead_ratio < 0 else "more"
    return (
        f"a step takes {format_seconds(case.step_s)}, with the profiler {format_seconds(case.profiled_step_s)} "
        f"({format_share(abs(case.overhead_ratio))} {more}; {of}{told}); "
        "shares are of the profiled step"
    )


def _plain(parts: Sequence[RenderableType]) -> str:
    from rich.console import Console

    console = Console(width=200, highlight=False, no_color=True)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()
