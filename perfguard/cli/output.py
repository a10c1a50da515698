"""Everything that goes to stdout for people."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable
from typing import NoReturn

import click
from rich.console import Console, RenderableType

from perfguard.cli.diagnostics import reader_may_leave
from perfguard.codec import to_json
from perfguard.errors import UsageError

PLAIN_WIDTH = 200
"""Width where stdout is a file or a CI log, unless `COLUMNS` is set: nothing there wraps lines, so rows stay whole."""


def print_parts(render: Callable[[int], Iterable[RenderableType]]) -> None:
    """Print what a renderer makes for the width of the terminal, or for `COLUMNS`."""
    width = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns
    console = Console(width=width, highlight=False)
    for part in render(width):
        console.print(part)


def print_and_exit(
    found: object, render: Callable[[], Iterable[RenderableType]], output_format: str, *, exit_code: int
) -> NoReturn:
    """Print a result as a table or as JSON, and exit with its code, whoever reads.

    Raises:
        UsageError: The format is one of gates alone.
    """
    if output_format not in ("table", "json"):
        raise UsageError(f"--format {output_format} is for gates; write table or json")
    with reader_may_leave():
        if output_format == "json":
            click.echo(to_json(found, indent=1))
        else:
            print_parts(lambda _: render())
    raise click.exceptions.Exit(exit_code)


def plain_text(parts: Iterable[RenderableType]) -> str:
    """What `print_parts` prints to a log."""
    console = Console(width=PLAIN_WIDTH, highlight=False, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()
