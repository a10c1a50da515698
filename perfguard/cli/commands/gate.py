"""`perfguard gate`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.commands.compare import judge, judging_options


@click.command("gate")
@click.option(
    "--baseline",
    metavar="ARM",
    help="What to compare with; default: the stored baseline where one fits this machine, else git:HEAD.",
)
@judging_options
def command(**options: Any) -> None:
    """Judge the working tree against the stored baseline or the last commit.

    Exits with 1 on a regression, 4 where the noise was too high to tell. See `perfguard compare --help` for arms.
    """
    judge("gate", options, default_baseline=None)
