"""`perfguard run`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.options import ARMS_HELP, load, measuring_options, output_options
from perfguard.cli.watching import tui_option


@click.command("run", epilog=ARMS_HELP)
@measuring_options
@click.option(
    "--arm", default="dir:.", show_default=True, metavar="ARM", help="What to measure: git:REV, python:PATH, …"
)
@click.option("--rounds", type=int, metavar="N", help="Fresh processes to measure in.")
@tui_option
@output_options
def command(**options: Any) -> None:
    """Measure a suite in fresh, pinned processes, without a comparison.

    The raw samples are pyperf files in the run's folder.
    """
    from perfguard.cli.measuring import build_request, show
    from perfguard.gate.stored.rounds import run_arm
    from perfguard.runner.arms.resolve import parse_arm

    arm = parse_arm(options["arm"])
    loaded = load(options)
    request = build_request("run", loaded, options)
    show(run_arm(request, arm, rounds=loaded.config.rounds), options)
