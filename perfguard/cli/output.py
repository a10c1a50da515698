"""Everything that goes to stdout for people."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from perfguard.cli.diagnostics import is_terminal
from perfguard.records.facts import Severity
from perfguard.records.machine.fingerprint import CheckResult, CheckStatus
from perfguard.records.result import RunResult
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.result import render_result

_PLAIN_WIDTH = 200
"""Width where stdout is a file or a CI log: nothing there wraps lines for us, so rows stay whole."""


def print_result(result: RunResult, least: Severity) -> None:
    """Print a result, as wide as the terminal, with the notes that matter at least so much."""
    console = _console()
    for part in render_result(result, width=console.width, least=least):
        console.print(part)


def result_text(result: RunResult) -> str:
    """What `print_result` prints to a log."""
    console = Console(width=_PLAIN_WIDTH, highlight=False, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        for part in render_result(result, width=_PLAIN_WIDTH):
            console.print(part)
    return capture.get()


def print_parts(render: Callable[[int], Sequence[RenderableType]]) -> None:
    """Print what a renderer makes for the width of the terminal."""
    console = _console()
    for part in render(console.width):
        console.print(part)


def _console() -> Console:
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else _PLAIN_WIDTH
    return Console(width=width, highlight=False)


_CHECK_SIGNS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.WARN: ("!", "yellow"),
    CheckStatus.FAIL: ("✗", "bold red"),
    CheckStatus.UNKNOWN: ("?", "dim"),
    CheckStatus.NOT_APPLICABLE: ("-", "dim"),
}


def print_checks(checks: Sequence[CheckResult]) -> None:
    """Print doctor's rows: sign, name, what was seen; for anything but ok also why and the fix."""
    console = _console()
    width = max(len(check.id) for check in checks)
    for check in checks:
        sign, style = _CHECK_SIGNS[check.status]
        console.print(Text.assemble((f"{sign} {check.id:<{width}}  ", style), describe(check.observed)))
        if check.status in (CheckStatus.WARN, CheckStatus.FAIL):
            console.print(Text(f"  {'':<{width}}  why: {describe(check.why)}", style="dim"))
            if check.fix:
                console.print(Text(f"  {'':<{width}}  fix: {describe(check.fix)}"))
    bad = sum(check.status in (CheckStatus.WARN, CheckStatus.FAIL) for check in checks)
    console.print(f"{len(checks)} checks, {bad} need attention" if bad else f"{len(checks)} checks, nothing to do")
