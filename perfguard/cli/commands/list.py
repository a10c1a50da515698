"""`perfguard list`."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from perfguard.benchmarks.selection import suite_cases
from perfguard.cli.diagnostics import is_terminal
from perfguard.cli.options import load
from perfguard.codec import to_json
from perfguard.errors import NothingSelectedError
from perfguard.records.facts import Fact
from perfguard.records.spec import (
    BenchmarkSpec,
    Case,
    Catalog,
    Gating,
    ParameterValue,
    SuiteSpec,
    expand,
    format_parameter,
)
from perfguard.report.messages.catalog import describe
from perfguard.units import format_count, format_duration, printable

_BESIDE_ID = 28
"""Columns of the phase and of whether a case gates."""


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("-s", "--suite", help="Only the cases of this suite.")
@click.option("--cases", is_flag=True, help="List every case, not only the benchmarks.")
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(**options: Any) -> None:
    """List suites, benchmarks and cases, your own included. PATTERN is an id, a name, a glob or tag:NAME."""
    from perfguard.runner.suites.selection import load_catalog, selected_cases

    catalog = load_catalog(load({}))
    if options["patterns"] or options["suite"]:
        cases = selected_cases(catalog, suite=options["suite"] or "", patterns=options["patterns"])
        _print_cases(cases, as_json=options["output_format"] == "json")
    else:
        _print_catalog(catalog, every_case=options["cases"], as_json=options["output_format"] == "json")


def _print_cases(cases: Sequence[Case], *, as_json: bool) -> None:
    """One case a line: id, phase, whether it gates."""
    if as_json:
        rows = [{"id": c.id, "target": c.target, "phase": c.phase, "tags": c.tags, "gating": c.gating} for c in cases]
        click.echo(to_json(rows, indent=1))
        return
    width = max((len(case.id) for case in cases), default=0)
    is_narrow = width + _BESIDE_ID > _room()
    for case in cases:
        advisory = "advisory" if case.gating is Gating.ADVISORY else "gating"
        between = "\n   " if is_narrow else " " * (width - len(case.id) + 1)
        click.echo(f"{case.id}{between} {case.phase.value:<16}  {advisory}")


def _print_catalog(catalog: Catalog, *, every_case: bool, as_json: bool) -> None:
    """Suites with their sizes, then benchmarks with their parameters."""
    if as_json:
        click.echo(to_json(catalog, indent=1))
        return
    click.echo("Suites")
    for suite in catalog.suites:
        _print_wrapped(f"  {suite.name:<8} {_size(catalog, suite)}", indent=11)
    click.echo("\nBenchmarks")
    width = max(len(spec.name) for spec in catalog.benchmarks)
    for name, alike in itertools.groupby(catalog.benchmarks, key=lambda spec: spec.name):
        specs = tuple(alike)
        _print_wrapped(f"  {name:<{width}}  {specs[0].doc}".rstrip(), indent=width + 4)
        if every_case:
            for case in (case for spec in specs for case in expand(spec)):
                click.echo(f"    {case.id}")
        else:
            for parameter, values in _values(specs).items():
                values_text = ", ".join(map(format_parameter, values))
                _print_wrapped(f"  {'':<{width}}    {parameter} = {values_text}", indent=width + 8)
    _print_notes(catalog.notes)


def _size(catalog: Catalog, suite: SuiteSpec) -> str:
    try:
        cases = suite_cases(catalog, suite.name)
    except NothingSelectedError as error:  # a list that breaks off cannot tell what there is instead
        return f"✗ {error}"
    gating = sum(case.gating is Gating.GATING for case in cases)
    advisory = len(cases) - gating
    more = f", {advisory} advisory" if advisory else ""
    return f"{format_count(gating, 'gating case')}{more}, {format_duration(suite.budget_s)}: {suite.doc}"


def _values(specs: Sequence[BenchmarkSpec]) -> dict[str, tuple[ParameterValue, ...]]:
    """The values of each parameter: suites of other tools may leave combinations out, and have several specs then."""
    values: dict[str, dict[ParameterValue, None]] = {}
    for spec in specs:
        for name, more in spec.parameters:
            values.setdefault(name, {}).update(dict.fromkeys(more))
    return {name: tuple(known) for name, known in values.items()}


def _print_notes(notes: Sequence[Fact]) -> None:
    if notes:
        click.echo("\nNotes")
    for note in notes:
        _print_wrapped(f"  {printable(describe(note))}", indent=4)


def _print_wrapped(text: str, *, indent: int) -> None:
    """A line that goes on below its beginning where the terminal is narrow."""
    indent = indent if indent < _room() // 2 else 4
    lines = textwrap.wrap(text, _room(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join(lines))


def _room() -> int:
    """Columns of the terminal; a file has as many as it takes."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else sys.maxsize
