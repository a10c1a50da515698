"""`perfguard tui`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load
from perfguard.cli.watching import find_source, require_tui, show_tui, source_options


@click.command("tui")
@click.argument("run", required=False)
@click.option("--replay", metavar="RUN", help="Play a recorded run again.")
@click.option("--speed", metavar="SPEED", help="Speed of the replay: 10x, 0.5, or max; default 1x.")
@source_options
@click.option("--theme", metavar="NAME", help="Colours; `?` in the TUI lists all themes.")
@click.option("--ascii", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--read-only", is_flag=True, help="Remove the dialog that starts runs.")
def command(**options: Any) -> None:
    """Watch RUN live: its cases, its ops, the history, the host; default: the latest run, or the first one to start.

    RUN is an id below .perfguard/runs or a path. The TUI only reads what the run writes: you can start it late, quit
    it, and start it again, in several terminals. Without a terminal use `perfguard watch`.
    """
    require_tui()
    loaded = load(options, keys=())
    watch = show_tui(loaded, find_source(loaded, options, may_wait=True), options)
    view = watch.view
    if view.run_id is not None and view.exit_code is None and watch.source.is_live:
        click.echo(f"run {view.run_id} was left alone; to come back: perfguard tui {view.run_id}")
