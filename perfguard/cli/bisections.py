"""A bisection on stdout."""

from __future__ import annotations

import click

from perfguard.cli.diagnostics import reader_may_leave
from perfguard.cli.output import print_parts
from perfguard.codec import to_json
from perfguard.records.bisection import Bisection
from perfguard.report.terminal.bisection import render_bisection, render_bisection_markdown


def show_bisection(found: Bisection, *, output_format: str) -> None:
    """Print a bisection in the wanted format and exit with its code."""
    with reader_may_leave():
        if output_format == "json":
            click.echo(to_json(found, indent=1))
        elif output_format == "md":
            click.echo(render_bisection_markdown(found))
        else:
            print_parts(lambda width: render_bisection(found, width=width))
    raise click.exceptions.Exit(found.exit_code)
