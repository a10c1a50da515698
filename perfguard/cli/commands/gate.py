"""`perfguard gate`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.commands.compare import judge, judging_options


@click.command("gate")
@click.option(
    "--baseline",
    metavar="ARM",
    help="What to compare with; default: the stored baseline of this machine, else git:HEAD.",
)
@judging_options
def command(**options: Any) -> None:
    """Judge the working tree against the stored baseline or the last commit.

    Exits with 1 on a regression, with 4 if the noise was too high for a verdict. See `perfguard compare --help` for
    arms.
    """
    judge("gate", options, default_baseline=None)
