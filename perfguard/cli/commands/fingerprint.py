"""`perfguard fingerprint`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("fingerprint")
@click.option("--json", "as_json", is_flag=True, help="JSON; its schema: `perfguard schema fingerprint`.")
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
@click.option("--no-software", is_flag=True, help="Do not read the software stack of an interpreter.")
def command(*, as_json: bool, root: Path | None, python: str | None, against: Path | None, no_software: bool) -> None:
    """Show this machine: CPU, usable ISA, topology, state, software, and the ids of machine and software.

    With --against the exit code is 0 if timings are comparable, else 3.
    """
    from perfguard.codec import to_json
    from perfguard.errors import ExitCode
    from perfguard.records.machine.fingerprint import CompatibilityLevel
    from perfguard.report.messages.catalog import describe
    from perfguard.report.terminal.fingerprint import render_fingerprint
    from perfguard.runner.doctor import fingerprint_of, match_file

    found = fingerprint_of(root, python=python, ask_software=not no_software)
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
