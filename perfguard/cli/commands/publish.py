"""`perfguard publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfguard.cli.options import load


@click.command("publish", epilog="`perfguard report RUN` writes one run as a single file.")
@click.option("-o", "--output", default="site", show_default=True, metavar="FOLDER", help="Where to.")
@click.option("--force", is_flag=True, help="Overwrite files that perfguard did not write.")
def command(**options: Any) -> None:
    """Write a static site over the recorded runs: a page for each, a table of all, and series of the cases.

    Only what has changed is written again, and pages of runs that were removed stay. Links are relative and nothing is
    loaded from elsewhere, so the folder can be served from any place, GitHub Pages among them, or opened as files.
    """
    from perfguard.pipeline.site import publish
    from perfguard.units import format_count, printable

    site = Path(options["output"])
    done = publish(load(options, keys=()), site, force=options["force"])
    for name in done.written:
        click.echo(f"wrote {printable(str(site / name))}")
    click.echo(f"{site / 'index.html'} lists {format_count(done.runs, 'run')}; {done.unchanged} unchanged")
