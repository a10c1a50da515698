"""`perfguard watch`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import load
from perfguard.cli.watching import find_source, source_options, stream


@click.command("watch")
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run has ended, and exit with its code.")
@click.option("--plain", is_flag=True, help="No colours and only ASCII signs: for logs and screen readers.")
@source_options
def command(**options: Any) -> None:
    """Print the events of RUN as lines; default: the latest run.

    RUN is an id below .perfguard/runs or a path. A run on another machine is always followed. Single samples are left
    out; all of them are in the run's events.jsonl.
    """
    from perfguard.watch.housekeeping import keep_off
    from perfguard.watch.view.watching import RunWatch

    source = find_source(load(options, keys=()), options)
    raise click.exceptions.Exit(
        stream(
            lambda listen: RunWatch(source, listen=listen, keep_off=keep_off),
            follow=options["follow"] or source.folder is None,  # what is far away comes in its own time
            is_plain=options["plain"],
        )
    )
