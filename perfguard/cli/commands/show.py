"""`perfguard show`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from perfguard.cli.options import load, output_options, verdict_options


@click.command("show", epilog="`perfguard export RUN --format junit|csv|openmetrics|…` writes the run for other tools.")
@click.argument("run", required=False)
@click.option("--rejudge", is_flag=True, help="Judge again, by this version's rule; --margin implies it.")
@verdict_options
@output_options
def command(**options: Any) -> None:
    """Show the verdict of a recorded RUN; default: the latest run.

    RUN is an id below .perfguard/runs or a path. A run that was killed is judged from what it measured.
    """
    from perfguard.cli.measuring import show
    from perfguard.gate.rules.policy import exit_code
    from perfguard.gate.show import find_run, rejudge_run, show_run

    loaded = load(options, keys=())
    folder = find_run(loaded, options["run"])
    is_judged_anew = options["rejudge"] or options["margin"] is not None
    result = rejudge_run(loaded, folder) if is_judged_anew else show_run(loaded, folder)
    if options["fail_on"] is not None and result.gate is not None:
        result = replace(result, exit_code=int(exit_code(result.gate, fail_on=loaded.config.fail_on)))
    show(result, options)
