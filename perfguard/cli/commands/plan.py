"""`perfguard plan`."""

from __future__ import annotations

from typing import Any

import click

from perfguard.cli.diagnostics import Verbosity
from perfguard.cli.options import load, margin_option, parse_percentage


@click.command("plan")
@click.option("--detect", required=True, metavar="EFFECT", help="Slowdown to detect, such as 2%.")
@click.option("--power", default="80%", show_default=True, metavar="CHANCE", help="Chance to detect it, such as 95%.")
@click.option("-s", "--suite", help="Suite to plan for.")
@click.option("--budget", "budget_s", type=float, metavar="SECONDS", help="Budget of one gate; default: the suite's.")
@margin_option
@click.option("--write", is_flag=True, help="Store the plan, so that gates on this machine follow it.")
@click.option("--format", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(**options: Any) -> None:
    """Compute the blocks and minutes that each gating case needs to detect a slowdown.

    Cases that cannot detect it within the budget become advisory, with the reason. The noise comes from this machine's
    calibration, else from the latest recorded gate of the suite. The confirmation of flags is not included.
    """
    from perfguard.cli.measuring import build_request
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.gate.plan import plan_suite, write_plan
    from perfguard.report.terminal.calibration import render_plan

    detect_ratio = parse_percentage("--detect", options["detect"])
    power = parse_percentage("--power", options["power"])
    loaded = load(options, keys=("suite", "budget_s"))
    request = build_request("plan", loaded, {"verbosity": Verbosity.QUIET})
    plan = plan_suite(request, detect_ratio=detect_ratio, power=power)
    if options["output_format"] == "json":
        click.echo(to_json(plan, indent=1))
    else:
        print_parts(lambda width: render_plan(plan, width=width))
    if options["write"]:
        path = write_plan(request, plan)
        click.echo(f"stored at {path}; commit it: git add {path}", err=True)
