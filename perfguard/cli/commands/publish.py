"""`perfguard publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfguard.cli.options import load

_SHOWN = 10
_MOST_CHARACTERS = 300


@click.command("publish", epilog="`perfguard report RUN` writes one run as a single file.")
@click.option("-o", "--output", default="site", show_default=True, metavar="FOLDER", help="Folder to write.")
@click.option("--force", is_flag=True, help="Overwrite files that perfguard did not write.")
def command(**options: Any) -> None:
    """Write a static site over the recorded runs: a page for each, a table of all, and series of the cases.

    Only changed pages are written again, and pages of removed runs stay. Links are relative and nothing is loaded from
    elsewhere. So you can serve the folder from any place, such as GitHub Pages, or open it as files.

    A run that cannot be read is named, and the others are still published; the exit code is 3 if a run has no page.
    """
    from perfguard.errors import ExitCode
    from perfguard.report.pages.site import publish
    from perfguard.units import format_count, printable, shorten

    site = Path(options["output"])
    done = publish(load(options, keys=()), site, force=options["force"])
    for name in done.written:
        click.echo(f"wrote {printable(str(site / name))}")
    click.echo(f"{site / 'index.html'} lists {format_count(done.runs, 'run')}; {done.unchanged} unchanged")
    found = (*done.failures, *done.problems)
    for sentence in found[:_SHOWN]:
        click.echo(printable(shorten(sentence, _MOST_CHARACTERS)), err=True)
    if len(found) > _SHOWN:
        click.echo(
            f"and {format_count(len(found) - _SHOWN, 'more run')} like these; the first page names them", err=True
        )
    if done.failures:
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))
