"""Everything that goes to stdout for people."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import click
from rich.console import Console, RenderableType
from rich.text import Text

from perfguard.cli.diagnostics import reader_may_leave
from perfguard.codec import to_json
from perfguard.errors import UsageError
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus
from perfguard.report.messages.catalog import describe

PLAIN_WIDTH = 200
"""Width where stdout is a file or a CI log, unless `COLUMNS` is set: nothing there wraps lines, so rows stay whole."""
_CHECK_SIGNS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.WARN: ("!", "yellow"),
    CheckStatus.FAIL: ("✗", "bold red"),
    CheckStatus.UNKNOWN: ("?", "dim"),
    CheckStatus.NOT_APPLICABLE: ("-", "dim"),
}


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


def print_checks(checks: Sequence[CheckResult]) -> None:
    """Print doctor's rows: sign, name, what was seen; for warnings and failures also why and the fix."""
    parts: list[RenderableType] = []
    width = max(len(check.id) for check in checks)
    indent = " " * (width + 4)
    for check in checks:
        sign, style = _CHECK_SIGNS[check.status]
        parts.append(Text.assemble((f"{sign} {check.id:<{width}}  ", style), describe(check.observed)))
        if check.status in (CheckStatus.WARN, CheckStatus.FAIL):
            parts.append(Text(f"{indent}why: {describe(check.why)}", style="dim"))
            if check.fix:
                parts.append(Text(f"{indent}fix: {describe(check.fix)}"))
    bad = sum(check.status in (CheckStatus.WARN, CheckStatus.FAIL) for check in checks)
    parts.append(f"{len(checks)} checks, {f'{bad} to look at' if bad else 'nothing to do'}")
    print_parts(lambda _: parts)
