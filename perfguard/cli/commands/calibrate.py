"""`perfguard calibrate` and `perfguard plan`: what a gate on this machine can detect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perfguard.cli import options as shared
from perfguard.cli.declaring import RatioType, SecondsType, flag
from perfguard.cli.diagnostics import Verbosity
from perfguard.cli.measuring import build_request
from perfguard.cli.output import print_parts
from perfguard.codec import to_json
from perfguard.errors import ExitCode, UsageError
from perfguard.records.plan import FOR_CALIBRATION
from perfguard.report.messages.catalog import describe
from perfguard.units import printable

if TYPE_CHECKING:
    from perfguard.gate.calibrate import Calibrated


@click.command("calibrate")
@click.option(
    "--gates", type=click.IntRange(min=0), default=10, show_default=True, metavar="N", help="A/A gates to run."
)
@click.option(
    "--placebo/--no-placebo",
    default=True,
    show_default=True,
    help="Put the identical arms at paths of unequal length, with environments of unequal size.",
)
@flag("--resume", help="Include stored gates: --gates is the total.")
@flag("--show", "only_show", help="Measure nothing; show what is stored.")
@shared.json_option
@shared.measuring_options
@shared.setup_option
@shared.progress_options
def calibrate_command(**options: Any) -> None:
    """Run A/A gates on this machine and store false alarms, noise of each case and detectable effects.

    Gates print the result as their error rate while machine, software, CPUs and rule stay the same, for 90 days.
    --budget is the length of one gate. Ctrl-C keeps the gates that have finished; a further call adds to them.
    """
    from perfguard.cli.measuring import build_request
    from perfguard.gate.calibrate import calibrate_machine, known_error_rate

    if options["patterns"]:
        raise UsageError("a calibration is stored for a suite; name one with --suite (your own: [suites.NAME])")
    request = build_request("calibrate", shared.load(options), options, gate=FOR_CALIBRATION)
    if options["only_show"]:
        _print_calibrated(known_error_rate(request), as_json=options["as_json"])
        return
    found = calibrate_machine(request, gates=options["gates"], placebo=options["placebo"], resume=options["resume"])
    _print_calibrated(found, as_json=options["as_json"])
    if found.calibration is not None:
        click.echo(f"stored at {found.path}; commit it: git add {found.path}", err=True)
    if found.interrupted:
        raise click.exceptions.Exit(int(ExitCode.INTERRUPTED))


def _print_calibrated(found: Calibrated, *, as_json: bool) -> None:
    """The error rate, the table of cases, and whether the calibration holds."""
    from perfguard.report.terminal.calibration import render_calibration

    if as_json:
        data = {
            "error_rate": found.error_rate,
            "interrupted": found.interrupted,
            "notes": found.notes,
            "path": str(found.path),
            "reason": found.state.reason,
            "scope": found.calibration.scope if found.calibration else None,
            "status": found.state.status,
            "summary": found.summary,
        }
        click.echo(to_json(data, indent=1))
        return
    for note in found.notes:
        click.echo(f"note       {printable(describe(note))}")
    if (summary := found.summary) is not None:
        print_parts(lambda width: render_calibration(summary, width=width))
    click.echo(printable(describe(found.error_rate)))


@click.command("plan")
@click.option("--detect", type=RatioType(), required=True, metavar="EFFECT", help="Slowdown to detect, such as 2%.")
@click.option(
    "--power",
    type=RatioType(),
    default="80%",
    show_default=True,
    metavar="CHANCE",
    help="Chance to detect it, such as 95%.",
)
@click.option("-s", "--suite", help="Suite to plan for.")
@click.option(
    "--budget", "budget_s", type=SecondsType(), metavar="TIME", help="Budget of one gate; default: the suite's."
)
@shared.margin_option
@flag("--write", help="Store the plan, so that gates on this machine follow it.")
@shared.format_option
def plan_command(**options: Any) -> None:
    """Compute the blocks and minutes that each gating case needs to detect a slowdown.

    Cases that cannot detect it within the budget become advisory, with the reason. The noise comes from this machine's
    calibration, else from the latest recorded gate of the suite. Detected is what ends red: flagged, and confirmed.
    """
    from perfguard.gate.plan import plan_suite, write_plan
    from perfguard.report.terminal.calibration import render_plan

    loaded = shared.load(options, keys=("suite", "budget_s"))
    request = build_request("plan", loaded, {"verbosity": Verbosity.QUIET})
    plan = plan_suite(request, detect_ratio=options["detect"], power=options["power"])
    if options["output_format"] == "json":
        click.echo(to_json(plan, indent=1))
    else:
        print_parts(lambda width: render_plan(plan, width=width))
    if options["write"]:
        path = write_plan(request, plan)
        click.echo(f"stored at {path}; commit it: git add {path}", err=True)
