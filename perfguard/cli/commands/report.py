"""`perfguard report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfguard.cli.options import load


@click.command("report", epilog="`perfguard publish` writes a site of all recorded runs.")
@click.argument("runs", nargs=-1, metavar="[RUN]…")
@click.option("-o", "--output", default="report.html", show_default=True, metavar="FILE", help="File to write.")
@click.option("--force", is_flag=True, help="Overwrite a file that perfguard did not write.")
def command(**options: Any) -> None:
    """Write recorded RUNs as one HTML file; default: the latest run.

    RUN is an id below .perfguard/runs or a path. The file holds everything that it needs, raw data included, and loads
    nothing. A killed or damaged run is shown as far as it can be read. The exit code says only whether the file was
    written.
    """
    from perfguard.gate.show import find_run
    from perfguard.report.pages.build import report_on
    from perfguard.report.pages.site import write_page
    from perfguard.units import format_bytes, printable

    loaded = load(options, keys=())
    folders = list(dict.fromkeys(find_run(loaded, name) for name in options["runs"] or (None,)))
    path = Path(options["output"])
    text = report_on(loaded, folders)
    write_page(path, text, force=options["force"])
    click.echo(f"wrote {printable(str(path))} ({format_bytes(len(text.encode()))})")
