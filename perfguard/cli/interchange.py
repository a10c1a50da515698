"""Exports to a file or stdout, and imports as people read them."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from perfguard.cli.diagnostics import is_terminal, reader_may_leave
from perfguard.cli.output import print_parts
from perfguard.codec import to_json
from perfguard.errors import UsageError
from perfguard.integrations.formats.series import (
    SECONDS,
    Difference,
    ImportedComparison,
    ImportedSeries,
    ImportedSuite,
    ImportReport,
    Objection,
)
from perfguard.records.facts import Fact
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import plain_table
from perfguard.store.files import write_whole
from perfguard.units import format_bytes, format_effect, format_ratio, format_seconds, printable

_SHOWN = 200
"""Series of a table; the others are counted."""
_NAMED = 3
_STYLES = {
    Difference.SLOWER: "bold red",
    Difference.FASTER: "bold green",
    Difference.EQUAL: "green",
    Difference.UNDECIDED: "yellow",
    Difference.NOT_COMPARED: "dim",
}


def write_export(content: bytes, output: str) -> None:
    """Write an export whole, or not at all.

    Args:
        content: The file.
        output: Its path; `-` is stdout.

    Raises:
        StoreError: It cannot be written.
        UsageError: Bytes that are no text would go to a terminal.
    """
    if output != "-":
        write_whole(Path(output), content)
        return
    if b"\0" in content and is_terminal(sys.stdout):
        raise UsageError("the format is not text; name a file with -o")
    with reader_may_leave():
        click.echo(content, nl=False)


def show_import(report: ImportReport, *, as_json: bool) -> None:
    """Print what was read, what is missing, and the comparison where there is one."""
    with reader_may_leave():
        if as_json:
            click.echo(to_json(report, indent=1))
        else:
            print_parts(lambda _: _parts(report))


def _parts(report: ImportReport) -> list[RenderableType]:
    parts: list[RenderableType] = []
    is_alone = len(report.suites) == 1
    for suite, objections in zip(report.suites, report.objections, strict=True):
        parts.extend(Text(printable(line), style="dim") for line in _head(suite))
        if is_alone:
            parts.append(_series_table(suite))
            parts.extend(_counted(len(suite.series), "series"))
            parts.extend(Text(printable(line)) for line in _missing(suite))
            parts.extend(_judgement(suite, objections))
    if report.comparisons:
        parts.append(_comparison_table(report.comparisons))
        parts.extend(_counted(len(report.comparisons), "series"))
        parts.extend(
            Text(printable(f"{entry.name}: {describe_all(entry.reasons)}")) for entry in report.comparisons[:_SHOWN]
        )
    parts.extend(Text(printable(f"note  {describe(note)}"), style="yellow") for note in report.notes)
    return parts


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
            Text(_value(series.summary.median, series.unit)),
            "-" if series.n is None else str(series.n),
            str(len(series.samples)) if series.samples and series.has_processes else "-",
            _spread(series),
            "yes" if series.samples else "no",
        )
    return table


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == SECONDS:
        return format_seconds(value)
    return format_bytes(value) if unit == "B" else f"{value:,.6g} {printable(unit)}".rstrip()


def _spread(series: ImportedSeries) -> str:
    sd, median = series.summary.sd, series.summary.median
    return format_ratio(sd / median) if sd is not None and median is not None and median > 0 else "-"


def _missing(suite: ImportedSuite) -> list[str]:
    """What is missing, each fact once with the series that it holds for."""
    found: dict[str, list[str]] = {}
    facts: dict[str, Fact] = {}
    for series in suite.series:
        for missing in series.what_is_missing:
            facts[missing.code] = missing
            found.setdefault(missing.code, []).append(series.name)
    return [
        *(f"missing: {describe(missing)}" for missing in suite.what_is_missing),
        *(f"missing: {describe(facts[code])} ({_names(names, len(suite.series))})" for code, names in found.items()),
    ]


def _judgement(suite: ImportedSuite, objections: tuple[Objection, ...]) -> list[RenderableType]:
    if not objections:
        return [Text("a gate could judge by it, as by rounds of a stored baseline", style="green")]
    return [
        Text(
            printable(
                f"a gate could not judge by {_names(list(found.series), len(suite.series))}: {describe(found.fact)}"
            ),
            style="yellow",
        )
        for found in objections
    ]


def _names(names: list[str], total: int) -> str:
    if len(names) == total:
        return "it" if total == 1 else f"any of its {total} series"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _comparison_table(comparisons: tuple[ImportedComparison, ...]) -> RenderableType:
    table = plain_table("~case", ">first/3", ">second/2", ">effect", ">95 % interval/1", "~difference")
    for entry in comparisons[:_SHOWN]:
        condition = "" if entry.has_control or entry.log_ratio is None else ", if the machine was as fast"
        table.add_row(
            Text(printable(entry.name)),
            format_seconds(entry.baseline_median_s),
            format_seconds(entry.candidate_median_s),
            format_effect(entry.log_ratio),
            f"{format_effect(entry.lower)} … {format_effect(entry.upper)}" if entry.log_ratio is not None else "-",
            Text(f"{entry.difference.value}{condition}", style=_STYLES[entry.difference]),
        )
    return table


def _counted(total: int, noun: str) -> list[RenderableType]:
    """How many are not shown."""
    more = total - _SHOWN
    return [Text(f"and {more} more {noun}; --json has all of them", style="dim")] if more > 0 else []
