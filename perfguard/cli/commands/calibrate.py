"""`perfguard calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import load, measuring_options, progress_options, setup_option

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
@click.option("--resume", is_flag=True, help="Include stored gates: --gates is the total.")
@click.option("--show", "only_show", is_flag=True, help="Measure nothing; show what is stored.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@measuring_options
@setup_option
@progress_options
def command(**options: Any) -> None:
    """Run A/A gates on this machine and store false alarms, noise of each case and detectable effects.

    Gates print the result as their error rate while machine, software, CPUs and rule stay the same, for 90 days.
    --budget is the length of one gate. Ctrl-C keeps the gates that have finished; a further call adds to them.
    """
    from perfguard.cli.measuring import build_request
    from perfguard.errors import ExitCode, UsageError
    from perfguard.gate.calibrate import calibrate_machine, known_error_rate
    from perfguard.records.plan import FOR_CALIBRATION

    if options["patterns"]:
        raise UsageError("a calibration is stored for a suite; name one with --suite (your own: [suites.NAME])")
    request = build_request("calibrate", load(options), options, gate=FOR_CALIBRATION)
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
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.report.messages.catalog import describe
    from perfguard.report.terminal.calibration import render_calibration
    from perfguard.units import printable

    if as_json:
        click.echo(
            to_json(
                {
                    "error_rate": found.error_rate,
                    "interrupted": found.interrupted,
                    "notes": found.notes,
                    "path": str(found.path),
                    "reason": found.state.reason,
                    "scope": found.calibration.scope if found.calibration else None,
                    "status": found.state.status,
                    "summary": found.summary,
                },
                indent=1,
            )
        )
        return
    for note in found.notes:
        click.echo(f"note       {printable(describe(note))}")
    summary = found.summary
    if summary is not None:
        print_parts(lambda width: render_calibration(summary, width=width))
    click.echo(printable(describe(found.error_rate)))
