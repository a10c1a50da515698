"""`perfguard run`, `compare`, `gate` and `bisect`: commands that measure arms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfguard.cli import options as shared
from perfguard.cli.declaring import SectionedCommand, flag, section, together
from perfguard.cli.diagnostics import reader_may_leave
from perfguard.cli.measuring import build_request, judge, show
from perfguard.cli.watching import tui_option
from perfguard.errors import UsageError

_COMPARE_EPILOG = f"""{shared.ARMS_HELP}  stored             the stored baseline of this machine (baseline only)
For instance: --baseline git:main --candidate dir:.+env:OMP_NUM_THREADS=4
"""
_BISECT_EPILOG = """\b
Exit codes: 0 one commit is named; 4 none can be named (no regression between the two, too much noise, skipped
commits remain, or the cause is outside --path); 2 usage; 3 the two cannot be compared; 5 no such case;
130 interrupted.
For instance: perfguard bisect --good v1.4 --bad main -c 'step.bert*' --setup 'pip install .'
"""

_judging_options = together(
    section(
        "Arms",
        click.option("--candidate", default="dir:.", show_default=True, metavar="ARM", help="What to judge."),
        flag("--anchor", help="Pair with the anchor's revision, with anchor_margin: finds many small slowdowns."),
        shared.setup_option,
    ),
    shared.measuring_options,
    section(
        "What is measured",
        flag("--measure-all", help="Measure also cases for which both arms run the same code."),
        flag("--measure-anyway", help="Measure even if both arms run the same code (A/A)."),
        click.option(
            "--inject",
            "injections",
            multiple=True,
            metavar="PATTERN=+5%",
            help="Slow down the candidate's cases (negative: the baseline's) to test the gate.",
        ),
        click.option(
            "--ops/--no-ops",
            default=None,
            help="Compare the ops of all cases, or of none; default: of regressed cases.",
        ),
    ),
    shared.verdict_options,
    shared.trust_options,
    section("Output", tui_option),
    shared.output_options,
)
"""Options of `compare` and `gate`, but for the baseline."""


@click.command("run", cls=SectionedCommand, epilog=shared.ARMS_HELP)
@section(
    "What is measured",
    click.option(
        "--arm", default="dir:.", show_default=True, metavar="ARM", help="What to measure: git:REV, python:PATH, …"
    ),
)
@shared.scaling_options
@section("How long", click.option("--rounds", type=int, metavar="N", help="Fresh processes to measure in."))
@section("Output", tui_option)
@shared.output_options
def run_command(**options: Any) -> None:
    """Measure a suite in fresh, pinned processes, without a comparison.

    The raw samples are pyperf files in the run's folder.
    """
    from perfguard.gate.stored.rounds import run_arm
    from perfguard.runner.arms.resolve import parse_arm
    from perfguard.runner.scaling import Axes, spread_request

    arm = parse_arm(options["arm"])
    ranks, threads = options.pop("ranks"), options.pop("threads") or ()
    if ranks is None and threads:
        if len(threads) > 1:
            raise UsageError("several numbers of --threads need --ranks, as in --ranks 1,2 --threads 1,2")
        options["threads"] = threads[0]
    loaded = shared.load(options)
    request = build_request("run", loaded, options)
    if ranks is not None:
        request = spread_request(request, Axes(ranks=ranks, threads=threads))
    show(run_arm(request, arm, rounds=loaded.config.rounds), options)


@click.command("compare", cls=SectionedCommand, epilog=_COMPARE_EPILOG)
@section("Arms", click.option("--baseline", metavar="ARM", help="What to compare with.  [default: git:HEAD]"))
@_judging_options
def compare_command(**options: Any) -> None:
    """Measure two arms in interleaved blocks and judge each case."""
    judge("compare", options, default_baseline="git:HEAD")


@click.command("gate", cls=SectionedCommand)
@section(
    "Arms",
    click.option(
        "--baseline",
        metavar="ARM",
        help="What to compare with; default: the stored baseline of this machine, else git:HEAD.",
    ),
)
@_judging_options
def gate_command(**options: Any) -> None:
    """Judge the working tree against the stored baseline or the last commit.

    Exits with 1 on a regression, with 4 if the noise was too high for a verdict. See `perfguard compare --help` for
    arms.
    """
    judge("gate", options, default_baseline=None)


@click.command("bisect", cls=SectionedCommand, epilog=_BISECT_EPILOG)
@section(
    "Commits",
    click.option("--good", required=True, metavar="REV", help="Revision that is fast."),
    click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="Revision that is slow."),
    flag("--first-parent", help="Take each merged branch as one commit."),
    click.option(
        "--path", "paths", multiple=True, metavar="PATH", help="Test only commits that touch PATH. May be repeated."
    ),
    shared.setup_option,
)
@shared.measuring_options
@section("Verdict", shared.margin_option, flag("--fresh", help="Measure everything again; ignore stored answers."))
@shared.output_options
def bisect_command(**options: Any) -> None:
    """Find the commit that made cases slower, by paired gates of the good revision against commits after it.

    Name the cases with --case: each gate measures only these. The first gate compares good with bad and drops cases
    that did not regress. A commit is bad if a case is slower than in the good revision, good if the case is shown to
    be nearer to good than to bad, else skipped. --budget is the length of one gate. Answers are stored in
    .perfguard/bisect/, so the same command continues where it ended.
    """
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.gate.bisect import bisect
    from perfguard.records.plan import FOR_BISECTION
    from perfguard.report.terminal.bisection import render_bisection, render_bisection_markdown
    from perfguard.runner.arms.git import CommitRange

    if not options["patterns"]:
        raise UsageError("name the cases that became slower with --case; `perfguard list --cases` shows them all")
    request = build_request("bisect", shared.load(options), options, gate=FOR_BISECTION)
    paths = tuple(_absolute(path) for path in options["paths"])
    span = CommitRange(good=options["good"], bad=options["bad"], first_parent=options["first_parent"], paths=paths)
    found = bisect(request, span, is_fresh=options["fresh"])
    with reader_may_leave():
        if options["output_format"] == "json":
            click.echo(to_json(found, indent=1))
        elif options["output_format"] == "md":
            click.echo(render_bisection_markdown(found))
        else:
            print_parts(lambda width: render_bisection(found, width=width))
    raise click.exceptions.Exit(found.exit_code)


def _absolute(path: str) -> str:
    """A path as git finds it from anywhere; pathspecs with magic stay as they are."""
    return path if path.startswith(":") else str(Path(path).parent.resolve() / Path(path).name)
