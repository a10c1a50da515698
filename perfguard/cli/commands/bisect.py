"""`perfguard bisect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.options import load, margin_option, measuring_options, output_options, setup_option

if TYPE_CHECKING:
    from perfguard.records.bisection import Bisection

_EPILOG = """\b
Exit codes: 0 one commit is named; 4 none can be named (no regression between the two, too much noise, skipped
commits remain, or the cause is outside --path); 2 usage; 3 the two cannot be compared; 5 no such case;
130 interrupted.
For instance: perfguard bisect --good v1.4 --bad main -c 'step.bert*' --setup 'pip install .'
"""


@click.command("bisect", epilog=_EPILOG)
@click.option("--good", required=True, metavar="REV", help="Revision that is fast.")
@click.option("--bad", default="HEAD", show_default=True, metavar="REV", help="Revision that is slow.")
@click.option("--first-parent", is_flag=True, help="Take each merged branch as one commit.")
@click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="Test only commits that touch PATH. May be repeated."
)
@click.option("--fresh", is_flag=True, help="Measure everything again; ignore stored answers.")
@measuring_options
@setup_option
@margin_option
@output_options
def command(**options: Any) -> None:
    """Find the commit that made cases slower, by paired gates of the good revision against commits after it.

    Name the cases with --case: each gate measures only these. The first gate compares good with bad and drops cases
    that did not regress. A commit is bad if a case is slower than in the good revision, good if the case is shown to
    be nearer to good than to bad, else skipped. --budget is the length of one gate. Answers are stored in
    .perfguard/bisect/, so the same command continues where it ended.
    """
    from perfguard.cli.measuring import build_request
    from perfguard.errors import UsageError
    from perfguard.gate.bisect import bisect
    from perfguard.records.plan import FOR_BISECTION
    from perfguard.runner.arms.git_bisect import Span

    if not options["patterns"]:
        raise UsageError("name the cases that became slower with --case; `perfguard list --cases` shows them all")
    request = build_request("bisect", load(options), options, gate=FOR_BISECTION)
    paths = tuple(_absolute(path) for path in options["paths"])
    span = Span(good=options["good"], bad=options["bad"], first_parent=options["first_parent"], paths=paths)
    _show(bisect(request, span, is_fresh=options["fresh"]), output_format=options["output_format"])


def _absolute(path: str) -> str:
    """A path as git finds it from anywhere; pathspecs with magic stay as they are."""
    from pathlib import Path

    return path if path.startswith(":") else str(Path(path).parent.resolve() / Path(path).name)


def _show(found: Bisection, *, output_format: str) -> None:
    """Print a bisection in the wanted format and exit with its code."""
    from perfguard.cli.diagnostics import reader_may_leave
    from perfguard.cli.output import print_parts
    from perfguard.codec import to_json
    from perfguard.report.terminal.bisection import render_bisection, render_bisection_markdown

    with reader_may_leave():
        if output_format == "json":
            click.echo(to_json(found, indent=1))
        elif output_format == "md":
            click.echo(render_bisection_markdown(found))
        else:
            print_parts(lambda width: render_bisection(found, width=width))
    raise click.exceptions.Exit(found.exit_code)
