"""`perfguard tune`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perfguard.cli import options as shared
from perfguard.cli.declaring import SecondsType, flag
from perfguard.cli.diagnostics import Verbosity, is_terminal, reader_may_leave
from perfguard.cli.measuring import build_request
from perfguard.cli.output import print_parts
from perfguard.cli.targets import TakesScript, is_script
from perfguard.codec import to_json
from perfguard.errors import ArmError, UsageError
from perfguard.records.plan import FOR_TRIALS

if TYPE_CHECKING:
    from perfguard.records.tuning import TriedTrial
    from perfguard.runner.session import Request
    from perfguard.tuning.case import CaseTarget
    from perfguard.tuning.script import ScriptTarget

_DEFAULT_BUDGET_S = 1800.0
_DEFAULT_TIMEOUT_S = 300.0
_EPILOG = """\b
Exit codes: 0 everything was tried; 4 trials were left open by the budget or an unstable host, or the
settings together compute something else; 2 usage; 3 the case or script cannot be measured; 5 no such case;
130 interrupted.
TARGET is a case, or a script with its arguments:
  perfguard tune --budget 1200 'step.bert[layers=2,hidden=256,sequence=128,batch=4,dtype=fp32,mode=eager]'
  perfguard tune --toggles optimizer,memory_format train.py --epochs 1
Arguments after a script go to the script.
"""


@click.command("tune", cls=TakesScript, epilog=_EPILOG, options_metavar="[OPTIONS]")
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--toggles", metavar="LIST", help="Try only these, separated by commas: optimizer,dtype; default: all that apply."
)
@click.option("--arm", default="dir:.", show_default=True, metavar="ARM", help="The reference; see `compare`.")
@click.option(
    "--budget",
    "budget_s",
    type=SecondsType(),
    metavar="TIME",
    help=f"Wall-clock budget, profile and waiting included.  [default: {_DEFAULT_BUDGET_S:g}]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SecondsType(),
    metavar="TIME",
    help=f"Maximum time for a script's start or step.  [default: {_DEFAULT_TIMEOUT_S:g}]",
)
@flag("--fresh", help="Measure everything again; ignore stored trials.")
@shared.sampling_options
@shared.format_choice("table", "json", "md")
@shared.progress_options
def tune_command(**options: Any) -> None:
    """Find the settings that make TARGET faster: dtype, memory format, optimizer, allocator, threads, a case's options.

    The target is profiled, and each toggle tried in a paired run of its own, first what the profile's findings name. A
    gain joins the settings that later trials build on; what computes something else is refused. At the end each setting
    must still be a gain beside the others, and all of them are compared with the reference in fresh processes.

    A script stays unchanged: the settings are made from outside, and one that it ignores is left out. It must make
    steps of a torch.optim optimizer and compute the same each time.

    Trials are ordinary runs: `perfguard tui` shows them live, and all of them on its screen 8. They are stored in
    .perfguard/tune/, so the same command continues where it ended, with a page (HTML) on all of them beside.
    """
    from perfguard.report.html.tuning import render_tuning_page
    from perfguard.report.terminal.tuning import render_tuning, render_tuning_markdown
    from perfguard.store.files import write_text
    from perfguard.tuning.journal import open_journal
    from perfguard.tuning.tune import tune

    target = _target(options)
    journal = open_journal(target.journals, target.scope(), is_fresh=options["fresh"])
    show = _show_trial if options.get("verbosity") is not Verbosity.QUIET else lambda _: None
    found = tune(target, journal, target.request.budget_s, on_trial=show)
    with reader_may_leave():
        if options["output_format"] == "json":
            click.echo(to_json(found, indent=1))
        elif options["output_format"] == "md":
            click.echo(render_tuning_markdown(found))
        else:
            print_parts(lambda _: render_tuning(found))
    write_text(Path(found.page), render_tuning_page(found))
    raise click.exceptions.Exit(found.exit_code)


def _target(options: dict[str, Any]) -> CaseTarget | ScriptTarget:
    """The case or script, its arm and its toggles. Raises UsageError: it is several, or a toggle is unknown."""
    from perfguard.runner.arms.resolve import parse_arm
    from perfguard.runner.suites import load_catalog
    from perfguard.tuning.case import case_target
    from perfguard.tuning.script import script_target

    has_script = is_script(options["target"])
    if not has_script and options["timeout_s"] is not None:
        raise UsageError("--timeout is for scripts; a case has the limits of `perfguard compare`")
    timeout_s = _DEFAULT_TIMEOUT_S if options["timeout_s"] is None else options["timeout_s"]
    if not 0 < timeout_s < math.inf:
        raise UsageError(f"--timeout {timeout_s:g}: give a number of seconds above 0")
    # A line for each trial is enough, except where a bar can show how far the trial is.
    verbosity = options.get("verbosity", Verbosity.NORMAL)
    if verbosity is Verbosity.NORMAL and not is_terminal(sys.stderr):
        options = {**options, "verbosity": Verbosity.QUIET}
    loaded = shared.load(options)
    patterns = () if has_script else (options["target"], *options["arguments"])
    request = build_request("tune", loaded, {**options, "patterns": patterns}, gate=FOR_TRIALS)
    request = replace(request, budget_s=loaded.config.budget_s or _DEFAULT_BUDGET_S)
    arm = parse_arm(options["arm"])
    if arm.stored:
        raise ArmError("--arm stored: a stored baseline cannot be measured; name a tree, such as git:HEAD")
    names = [name.strip() for name in (options["toggles"] or "").split(",") if name.strip()]
    if has_script:
        path, arguments = Path(options["target"]), options["arguments"]
        return script_target(request, arm, path, arguments, timeout_s=timeout_s, names=names)
    return case_target(_of_one_case(request), arm, load_catalog(loaded).benchmarks, names)


def _of_one_case(request: Request) -> Request:
    """The request. Raises UsageError: it is of several cases."""
    if len(request.cases) > 1:
        raise UsageError(
            f"{request.suite!r} names {len(request.cases)} cases; tune takes one, for instance {request.cases[0].id!r}"
        )
    return request


def _show_trial(tried: TriedTrial) -> None:
    from perfguard.report.terminal.tuning import trial_line

    click.echo(f"· {trial_line(tried)}", err=True)
