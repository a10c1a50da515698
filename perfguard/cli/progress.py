"""Progress on stderr: a live line with ETA on a terminal, a line for each case otherwise."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

import click

from perfguard.cli.diagnostics import is_terminal
from perfguard.records.events import (
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    CaseFailed,
    CaseFinished,
    Event,
    LookTaken,
    Noted,
    RunFinished,
    RunStarted,
)
from perfguard.records.facts import Severity
from perfguard.report.messages.catalog import describe
from perfguard.units import format_count, format_duration, format_seconds, printable


class Progress(Protocol):
    """Something that watches a run."""

    def step(self, text: str) -> None:
        """One line before measuring starts."""
        ...

    def observe(self, event: Event) -> None:
        """One event of the run."""
        ...


def make_progress(*, enabled: bool) -> Progress:
    """The progress that fits stderr: live, plain or none."""
    if not enabled:
        return _Silent()
    return _Live() if is_terminal(sys.stderr) else _Plain()


class _Silent:
    def step(self, text: str) -> None:
        """Say nothing."""

    def observe(self, event: Event) -> None:
        """Say nothing."""


class _Plain:
    """One line for each case and each block; no control characters."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._budget_s = 0.0

    def step(self, text: str) -> None:
        click.echo(f"· {text}", err=True)

    def observe(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._started, self._budget_s = time.monotonic(), event.budget_s
            case CaseCalibrated():
                click.echo(
                    f"· {event.case_id}: {format_seconds(event.iteration_s)} an iteration, {event.inner_loops} a slice",
                    err=True,
                )
            case CaseFailed(skipped=False):
                click.echo(f"! {event.case_id} failed in the {event.arm.value}: {describe(event.reason)}", err=True)
            case BlockFinished():
                left = max(0.0, self._budget_s - (time.monotonic() - self._started))
                click.echo(
                    f"· block {event.block + 1}: {event.duration_s:.1f} s, at most {format_duration(left)} left",
                    err=True,
                )
            case LookTaken() if event.decided:
                click.echo(f"· {_answers(event)}", err=True)
            case Noted():
                sign = "·" if event.fact.severity is Severity.INFO else "!"
                click.echo(f"{sign} {printable(describe(event.fact))}", err=True)
            case _:
                pass


class _Live:
    """A rich progress bar over the budget; repaints only between slices, from the events themselves."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()
        self._block = 0

    def step(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=time.monotonic() - self._started)
            self._bar.refresh()
        else:
            click.echo(click.style(f"· {text}", dim=True), err=True)

    def observe(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._started = time.monotonic()
                self._open(event)
            case BlockStarted():
                self._block = event.block + 1
                self.step(f"block {self._block}")
            case CaseFinished():
                self.step(f"block {self._block} · {event.case_id}")
            case CaseFailed(skipped=False):
                self._print(f"! {event.case_id} failed in the {event.arm.value}: {describe(event.reason)}")
            case LookTaken() if event.decided:
                self._print(f"· {_answers(event)}")
            case Noted() if event.fact.severity is not Severity.INFO:
                self._print(f"! {printable(describe(event.fact))}")
            case RunFinished():
                self._close()
            case _:
                pass

    def _open(self, event: RunStarted) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("at most"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,  # a refresh thread would run beside the slices
        )
        self._task = self._bar.add_task("starting", total=event.budget_s)
        self._bar.start()

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _answers(look: LookTaken) -> str:
    """Cases that got their answer at a look and are measured no further."""
    found = ", ".join(f"{printable(case_id)} {outcome}" for case_id, outcome in look.decided.items())
    return f"answered after {format_count(look.blocks, 'block')}: {found}"
