"""`perfguard export` and `perfguard import`: recorded runs for other tools, and files of other tools for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType
from rich.text import Text

from perfguard.cli.declaring import flag
from perfguard.cli.diagnostics import is_terminal, reader_may_leave
from perfguard.cli.options import load
from perfguard.codec import to_json
from perfguard.errors import UsageError
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import plain_table
from perfguard.units import format_bytes, format_effect, format_ratio, format_seconds, printable

if TYPE_CHECKING:
    from perfguard.integrations.formats.suites import ImportedSeries, ImportedSuite, ImportReport

EXPORTED = ("pyperf", "asv", "pytorch", "bencher", "github-action", "junit", "sarif", "openmetrics", "csv", "parquet")
"""As `perfguard.integrations.formats.exporting.WRITERS` names them, which is not imported for help."""
IMPORTED = ("auto", "pyperf", "asv", "pytest-benchmark", "google-benchmark", "pytorch", "bencher")
"""As `perfguard.integrations.formats.importing.READERS` names them, which is not imported for help."""
_SHOWN = 200  # Series of a table; the others are counted
_NAMED = 3
_STYLES = {"slower": "bold red", "faster": "bold green", "equal": "green", "undecided": "yellow", "not-compared": "dim"}
"""By the value of `Difference`."""

_EXPORT_EPILOG = """\b
pyperf         raw times of one arm, for `python -m pyperf stats` and `compare_to`
asv            results file, version 2, of one arm at a commit
pytorch        records of PyTorch's benchmark database, version 3, of one arm
bencher        Bencher Metric Format, of one arm
github-action  customSmallerIsBetter of github-action-benchmark, of one arm
junit          verdicts as tests, for GitLab, Jenkins and Azure
sarif          regressions at their lines, for code scanning and editors
openmetrics    times, effects and verdicts, for node_exporter or a Pushgateway
csv, parquet   verdicts as a table; with --samples, every sample of both arms
For instance: perfguard export --format junit -o perfguard.xml
"""
_IMPORT_EPILOG = """\b
pyperf            what pyperf's runners write with -o
asv               a results file of asv, version 2
pytest-benchmark  what --benchmark-json or --benchmark-save writes
google-benchmark  what --benchmark_out writes
pytorch           records of PyTorch's benchmark database, version 3
bencher           Bencher Metric Format
For instance: perfguard import before.json after.json
"""


@click.command("export", epilog=_EXPORT_EPILOG)
@click.argument("run", required=False)
@click.option("--format", "name", type=click.Choice(EXPORTED), required=True, help="Format to write.")
@click.option("-o", "--output", default="-", metavar="FILE", help="File to write; default: stdout.")
@click.option(
    "--arm",
    type=click.Choice(["candidate", "baseline"]),
    default="candidate",
    show_default=True,
    help="Which arm, for formats that hold one.",
)
@flag("--samples", help="Raw samples instead of verdicts: csv and parquet.")
@click.option("--commit", metavar="SHA", help="Commit of the arm, if it was not measured at one: asv.")
def export_command(*, run: str | None, output: str, **options: Any) -> None:
    """Write a recorded RUN in the format of another tool; default: the latest run.

    RUN is an id below .perfguard/runs or a path. The verdict is that of `perfguard show`. The exit code says only
    whether the file was written. docs/interchange.md lists what each format loses.
    """
    from perfguard.gate.show import find_run
    from perfguard.integrations.formats.exporting import export
    from perfguard.store.files import write_whole

    loaded = load({}, keys=())
    content = export(loaded, find_run(loaded, run), **options)
    if output != "-":
        write_whole(Path(output), content)
        return
    if b"\0" in content and is_terminal(sys.stdout):
        raise UsageError("the format is not text; name a file with -o")
    with reader_may_leave():
        click.echo(content, nl=False)


@click.command("import", epilog=_IMPORT_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE [OTHER]")
@click.option(
    "--format",
    "name",
    type=click.Choice(IMPORTED),
    default="auto",
    show_default=True,
    help="Format of the files; auto detects it.",
)
@flag("--json", "as_json", help="Print everything that was read as JSON.")
def import_command(*, files: tuple[str, ...], name: str, as_json: bool) -> None:
    """Show what a FILE of another benchmark tool holds, what it lacks, and whether a gate could use it.

    With a second file, compare what both have in common, if both hold raw samples of two processes or more. That is
    no gate and never fails: the exit code says only whether the files could be read. `-` reads stdin.
    """
    from perfguard.cli.output import print_parts
    from perfguard.integrations.formats.importing import import_files

    if len(files) > 2:
        raise UsageError(f"{len(files)} files were named; one is shown, two are compared")
    report = import_files(load({}, keys=()), files, name=name)
    with reader_may_leave():
        if as_json:
            click.echo(to_json(report, indent=1))
        else:
            print_parts(lambda _: _import_parts(report))


def _import_parts(report: ImportReport) -> list[RenderableType]:
    """What was read, what is missing, and the comparison where there is one."""
    parts: list[RenderableType] = []
    for suite in report.suites:
        parts += [Text(printable(line), style="dim") for line in _head(suite)]
    if len(report.suites) == 1:
        parts += [_series_table(report.suites[0]), *_counted(len(report.suites[0].series)), *_judgement(report)]
    if report.comparisons:
        parts += [_comparison_table(report), *_counted(len(report.comparisons))]
        parts += [Text(printable(f"{one.name}: {describe_all(one.reasons)}")) for one in report.comparisons[:_SHOWN]]
    return [*parts, *(Text(printable(f"note  {describe(note)}"), style="yellow") for note in report.notes)]


def _head(suite: ImportedSuite) -> list[str]:
    version = f" {suite.version}" if suite.version else ""
    facts = {"machine": suite.machine, "commit": suite.commit, "Python": suite.python, "torch": suite.torch}
    known = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    return [f"{suite.source}: {suite.tool}{version}", *([f"  {known}"] if known else ())]


def _series_table(suite: ImportedSuite) -> RenderableType:
    table = plain_table("~case", "~metric/1", ">median", ">values/3", ">processes/4", ">SD/2", "raw samples/5")
    for series in suite.series[:_SHOWN]:
        table.add_row(
            Text(printable(series.name)),
            Text(printable(series.metric)),
            Text(_median(series)),
            "-" if series.n is None else str(series.n),
            str(len(series.samples)) if series.samples and series.has_processes else "-",
            _spread(series),
            "yes" if series.samples else "no",
        )
    return table


def _median(series: ImportedSeries) -> str:
    value, unit = series.summary.median, series.unit
    if value is None:
        return "-"
    if unit in ("s", "B"):
        return (format_seconds if unit == "s" else format_bytes)(value)
    return f"{value:,.6g} {printable(unit)}".rstrip()


def _spread(series: ImportedSeries) -> str:
    sd, median = series.summary.sd, series.summary.median
    return format_ratio(sd / median) if sd is not None and median is not None and median > 0 else "-"


def _judgement(report: ImportReport) -> list[RenderableType]:
    """What is missing in the only suite, each fact once with the series that it holds for, and what a gate says."""
    from perfguard.integrations.formats.importing import by_fact

    (suite,), (objections,), total = report.suites, report.objections, len(report.suites[0].series)
    found = by_fact((series.name, missing) for series in suite.series for missing in series.what_is_missing)
    missing = [describe(fact) for fact in suite.what_is_missing]
    missing += [f"{describe(fact)} ({_names(names, total)})" for fact, names in found]
    refused = (
        f"a gate could not judge by {_names(list(one.series), total)}: {describe(one.fact)}" for one in objections
    )
    parts: list[RenderableType] = [Text(printable(f"missing: {sentence}")) for sentence in missing]
    if not objections:
        return [*parts, Text("a gate could judge by it, as by rounds of a stored baseline", style="green")]
    return [*parts, *(Text(printable(sentence), style="yellow") for sentence in refused)]


def _names(names: list[str], total: int) -> str:
    if len(names) == total:
        return "it" if total == 1 else f"any of its {total} series"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _comparison_table(report: ImportReport) -> RenderableType:
    table = plain_table("~case", ">first/3", ">second/2", ">effect", ">95 % interval/1", "~difference")
    for entry in report.comparisons[:_SHOWN]:
        condition = "" if entry.has_control or entry.log_ratio is None else ", if the machine was as fast"
        table.add_row(
            Text(printable(entry.name)),
            format_seconds(entry.baseline_median_s),
            format_seconds(entry.candidate_median_s),
            format_effect(entry.log_ratio),
            f"{format_effect(entry.lower)} … {format_effect(entry.upper)}" if entry.log_ratio is not None else "-",
            Text(f"{entry.difference.value}{condition}", style=_STYLES[entry.difference.value]),
        )
    return table


def _counted(total: int) -> list[RenderableType]:
    """How many series are not shown."""
    more = total - _SHOWN
    return [Text(f"and {more} more series; --json has all of them", style="dim")] if more > 0 else []
