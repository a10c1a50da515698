"""`perfguard show`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load, output_options, verdict_options


@click.command("show", epilog="`perfguard export RUN --format junit|csv|openmetrics|…` writes it for other tools.")
@click.argument("run", required=False)
@verdict_options
@output_options
def command(**options: Any) -> None:
    """Judge a recorded RUN again from its events; default: the latest run.

    RUN is an id below .perfguard/runs or a path. Works on a run that was killed, too: what was measured is judged.
    """
    from perfguard.cli.measuring import show
    from perfguard.gate.show import find_run, show_run

    loaded = load(options, keys=())
    show(show_run(loaded, find_run(loaded, options["run"])), options)
