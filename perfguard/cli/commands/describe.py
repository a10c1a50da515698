"""Commands that describe: suites and cases, the machine, the configuration, versions and schemas."""

from __future__ import annotations

import itertools
import json
import platform
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from perfguard import __version__
from perfguard.benchmarks.selection import suite_cases
from perfguard.cli.declaring import flag
from perfguard.cli.diagnostics import is_terminal, reader_may_leave
from perfguard.cli.options import cpus_option, format_option, json_option, load
from perfguard.codec import to_builtins, to_json
from perfguard.errors import ExitCode, NothingSelectedError
from perfguard.records.machine.fingerprint import CheckStatus, CompatibilityLevel
from perfguard.records.spec import Case, Catalog, Gating, ParameterValue, SuiteSpec, expand, format_parameter
from perfguard.report.messages.catalog import describe
from perfguard.units import format_count, format_duration, printable

SCHEMAS = ("result", "profile", "events", "fingerprint", "task")  # As `recordings` has; it is slow to import
_BESIDE_ID = 28  # Columns of the phase and of whether a case gates
_PACKAGES = (
    "pyperf",
    "torch",
    "textual",
    "rich",
    "psutil",
    "py-cpuinfo",
    "archspec",
    "click",
    "msgspec",
    "numpy",
    "scipy",
)
"""Whose versions matter to a report."""


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("-s", "--suite", help="Only the cases of this suite.")
@flag("--cases", help="List every case, not only the benchmarks.")
@format_option
def list_command(**options: Any) -> None:
    """List suites, benchmarks and cases, your own included. PATTERN is an id, a name, a glob or tag:NAME."""
    from perfguard.runner.suites import load_catalog, selected_cases

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
            continue
        # Suites of other tools may leave combinations of values out, and have several specs then.
        values: dict[str, dict[ParameterValue, None]] = {}
        for parameter, more in (pair for spec in specs for pair in spec.parameters):
            values.setdefault(parameter, {}).update(dict.fromkeys(more))
        options = {name: known for spec in specs for name, known in spec.options}
        for parameter, known in (*values.items(), *options.items()):
            text = ", ".join(map(format_parameter, known)) + (" (option)" if parameter in options else "")
            _print_wrapped(f"  {'':<{width}}    {parameter} = {text}", indent=width + 8)
    if catalog.notes:
        click.echo("\nNotes")
    for note in catalog.notes:
        _print_wrapped(f"  {printable(describe(note))}", indent=4)


def _size(catalog: Catalog, suite: SuiteSpec) -> str:
    try:
        cases = suite_cases(catalog, suite.name)
    except NothingSelectedError as error:  # a list that breaks off cannot tell what there is instead
        return f"✗ {error}"
    gating = sum(case.gating is Gating.GATING for case in cases)
    advisory = len(cases) - gating
    more = f", {advisory} advisory" if advisory else ""
    return f"{format_count(gating, 'gating case')}{more}, {format_duration(suite.budget_s)}: {suite.doc}"


def _print_wrapped(text: str, *, indent: int) -> None:
    """A line that goes on below its beginning where the terminal is narrow."""
    indent = indent if indent < _room() // 2 else 4
    lines = textwrap.wrap(text, _room(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join(lines))


def _room() -> int:
    """Columns of the terminal; a file has as many as it takes."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else sys.maxsize


@click.command("fingerprint")
@flag("--json", "as_json", help="JSON; its schema: `perfguard schema fingerprint`.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A recorded machine: a directory with proc and sys below it, or a tarball of one.",
)
@click.option("--python", metavar="PATH", help="Interpreter whose software stack to read; default: perfguard's own.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Another fingerprint's JSON: check whether timings of both are comparable, and why not.",
)
@flag("--no-software", help="Do not read the software stack of an interpreter.")
def fingerprint_command(*, as_json: bool, against: Path | None, **options: Any) -> None:
    """Show this machine: CPU, usable ISA, topology, state, software, and the ids of machine and software.

    With --against the exit code is 0 if timings are comparable, else 3.
    """
    from perfguard.report.terminal.fingerprint import render_fingerprint
    from perfguard.runner.doctor import fingerprint_of, match_file

    found = fingerprint_of(options["root"], python=options["python"], ask_software=not options["no_software"])
    if against is None:
        click.echo(to_json(found, indent=1) if as_json else render_fingerprint(found).rstrip("\n"))
        return
    compatibility = match_file(found, against)
    if as_json:
        click.echo(to_json(compatibility, indent=1))
    else:
        reasons = (f"  - {describe(reason)}" for reason in compatibility.reasons)
        click.echo("\n".join([compatibility.level.value, *reasons]))
    if compatibility.level is CompatibilityLevel.INCOMPARABLE:
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))


@click.command("doctor")
@json_option
@cpus_option
@click.option("--threads", type=int, metavar="N", help="How many of the CPUs to use.")
@click.option("--numa", metavar="NODE", help="NUMA node to measure on.")
@click.option("--env-profile", type=click.Choice(["stable", "production"]), help="Environment to measure in.")
def doctor_command(*, as_json: bool, **options: Any) -> None:
    """Check the host for sources of noise: what was found, why it matters, and the command that fixes it.

    Exits with 3 if a check fails; warnings alone exit with 0.
    """
    from perfguard.cli.output import print_parts
    from perfguard.report.terminal.checks import render_checks
    from perfguard.runner.doctor import check_host

    checks = check_host(load(options))
    with reader_may_leave():  # the exit code stands, whoever reads
        if as_json:
            click.echo(to_json(checks, indent=1))
        else:
            print_parts(lambda _: render_checks(checks))
    if any(check.status is CheckStatus.FAIL for check in checks):
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))


@click.group("env")
def env_command() -> None:
    """Make an environment for another software stack."""


@env_command.command("create")
@click.argument("stack")
@flag("--recreate", help="Remove an existing environment first.")
def create(*, stack: str, recreate: bool) -> None:
    """Install STACK (ipex) into a virtual environment of its own, about 7 GB; then use --candidate stack:ipex.

    It is created below $PERFGUARD_ENVS, by default in your data directory.
    """
    from perfguard.runner.arms.venvs import STACKS
    from perfguard.runner.arms.venvs import create as create_environment

    if stack in STACKS:
        click.echo(f"! {STACKS[stack].warning}", err=True)
    python = create_environment(stack, progress=lambda line: click.echo(f"· {line}", err=True), recreate=recreate)
    click.echo(str(python))


@click.group("config")
def config_command() -> None:
    """Show the configuration."""


@config_command.command("show")
@flag("--origin", help="Also print where each value comes from.")
@flag("--json", "as_json", help="JSON instead of TOML-like text.")
def show(*, origin: bool, as_json: bool) -> None:
    """Print every setting and its value: built-in, user's file, project's file, PERFGUARD_* variables."""
    loaded = load({})
    values = to_builtins(loaded.config)
    values["database"] = _without_password(values["database"])
    origins = {key: loaded.origins.get(key, "built-in") for key in values}
    if as_json:
        data = {key: {"value": value, "origin": origins[key]} for key, value in values.items()} if origin else values
        click.echo(json.dumps(data, indent=1))
        return
    for key, value in values.items():
        text = f"{key} = {json.dumps(value)}" if value is not None else f"# {key} is not set"
        click.echo(f"{text:<44}  # {origins[key]}" if origin else text)


@click.command("schema")
@click.argument("name", type=click.Choice(SCHEMAS))
def schema_command(*, name: str) -> None:
    """Print the JSON schema of an output, or of a task file.

    NAME is result (--format json of commands that measure), profile (--format json of `profile`), events
    (events.jsonl), fingerprint (--json) or task (a task file's content).
    """
    from perfguard.recordings import schema_of

    click.echo(json.dumps(schema_of(name), indent=1, sort_keys=True))


@click.command("version")
@json_option
def version_command(*, as_json: bool) -> None:
    """Show the versions of perfguard and its dependencies."""
    import importlib.metadata

    versions = {"perfguard": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    lines = "\n".join(f"{name:<12} {version}" for name, version in versions.items())
    click.echo(json.dumps(versions, indent=1) if as_json else lines)


def _without_password(url: str | None) -> str | None:
    """A URL with its password left out; other text as it is."""
    if url is None:
        return None
    hidden = re.sub(r"(://[^/@]*?):[^/]*@", r"\1:***@", url)
    return re.sub(r"([?&][^=&]*(?:password|passfile)=)[^&]*", r"\1***", hidden, flags=re.IGNORECASE)
