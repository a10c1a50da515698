"""Progress on stderr: a live line with ETA on a terminal, a few lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from perfguard.cli.diagnostics import Verbosity, is_terminal
from perfguard.records import events
from perfguard.records.case_names import short_names
from perfguard.records.facts import Fact, Severity
from perfguard.records.run import CaseFailed
from perfguard.records.training import TrainingEpoch, TrainingUse
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.training import epoch_line, use_line
from perfguard.units import format_count, format_duration, format_seconds, printable

_WAITING = "step.waiting"  # For another run that measures on this host
_LEAST_INTERVAL_S = 20.0
_LINES_A_BUDGET = 5  # Lines on how far a run is; a longer run has no more of them, just later ones
_MOST_FAILURES = 3  # Failed cases that have a line of their own; the result names all of them


def make_progress(verbosity: Verbosity, *, clock: Callable[[], float] = time.monotonic) -> RunProgress:
    """The progress that fits stderr: live, a few lines, every step, or none."""
    if verbosity is Verbosity.QUIET:
        return RunProgress(clock)
    if verbosity is Verbosity.VERBOSE:
        return _EveryStep(clock)
    return _Live(clock) if is_terminal(sys.stderr) else _NowAndThen(clock)


class RunProgress:
    """Watches a run and says nothing; what is known of the run has no control characters."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._budget_s = 0.0
        self._names: Mapping[str, str] = {}
        self._epoch: TrainingEpoch | None = None  # The last one of a run that trains

    def step(self, what: Fact) -> None:
        """Something begins that has no event of its own; that it waits for the host is always said."""
        if what.code == _WAITING:
            click.echo(f"· {describe(what)}", err=True)

    def observe(self, event: events.Event) -> None:
        """One event of the run."""

    def _begin(self, event: events.RunStarted) -> None:
        self._started, self._budget_s = self._clock(), event.budget_s
        self._names = short_names(event.case_ids)

    def _name(self, case_id: str) -> str:
        return printable(self._names.get(case_id, case_id))

    def _left(self) -> str:
        return f"at most {format_duration(max(0.0, self._budget_s - (self._clock() - self._started)))} left"

    def _line(self, event: events.Event) -> str | None:
        """The line on an event that changes the verdict or a case's part in it; None for all others."""
        match event:
            case CaseFailed(skipped=False):
                return f"! {self._name(event.case_id)} failed in the {event.arm.value}: {describe(event.reason)}"
            case events.InterimAnalysis() if event.decided:
                found = ", ".join(f"{self._name(case_id)} {outcome}" for case_id, outcome in event.decided.items())
                return f"· answered after {format_count(event.blocks, 'block')}: {found}"
            case events.Noted() if event.fact.severity is not Severity.INFO:
                return f"! {printable(describe(event.fact))}"
            case _:
                return None


class _NowAndThen(RunProgress):
    """At most ten lines a run, however long it is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._answered: set[str] = set()
        self._failed: set[str] = set()
        self._blocks = 0
        self._due = -1e18

    def step(self, what: Fact) -> None:
        if what.code == _WAITING or self._clock() >= self._due:
            self._say(f"· {describe(what)}")

    def observe(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._begin(event)
                self._blocks = 0
                self._answered.clear()
                self._failed.clear()
                if event.case_ids:  # else a script
                    cases = format_count(len(event.case_ids), "case")
                    self._say(f"· {cases}, measured for at most {format_duration(event.budget_s)}")
            case CaseFailed(skipped=False):
                if event.case_id not in self._failed and len(self._failed) < _MOST_FAILURES:
                    click.echo(self._line(event), err=True)
                self._failed.add(event.case_id)
            case events.RunFinished():
                self._due = self._clock()  # what follows says how it went
            case TrainingEpoch() | TrainingUse() | events.Noted():
                self._train(event)
            case events.InterimAnalysis():
                self._answered |= event.decided.keys()
                self._due = self._clock() if event.final else self._due  # what follows takes time beyond the budget
            case events.BlockFinished():
                self._blocks += 1
                if self._clock() >= self._due:
                    answered = f", {len(self._answered)} of {len(self._names)} cases answered" if self._answered else ""
                    self._say(f"· {format_count(self._blocks, 'block')}{answered}, {self._left()}")
            case _:
                pass

    def _train(self, event: TrainingEpoch | TrainingUse | events.Noted) -> None:
        match event:
            case TrainingEpoch():
                self._epoch = event
            case TrainingUse() if self._clock() >= self._due:
                self._say(f"· {use_line(event, self._epoch)}")
            case events.Noted() if self._epoch is not None and (line := self._line(event)):
                click.echo(line, err=True)
            case _:
                pass

    def _say(self, text: str) -> None:
        click.echo(text, err=True)
        # A run without a budget has fewer lines the longer it goes on.
        share_s = self._budget_s / _LINES_A_BUDGET if self._budget_s else (self._clock() - self._started) / 2
        self._due = self._clock() + max(_LEAST_INTERVAL_S, share_s)


class _EveryStep(RunProgress):
    """One line for each step, note, case and block."""

    def step(self, what: Fact) -> None:
        click.echo(f"· {describe(what)}", err=True)

    def observe(self, event: events.Event) -> None:
        for line in self._lines(event):
            click.echo(line, err=True)

    def _lines(self, event: events.Event) -> Iterable[str]:
        match event:
            case events.RunStarted():
                self._begin(event)
            case events.CaseCalibrated():
                pace = f"{format_seconds(event.iteration_s)} per iteration, {event.inner_loops} per sample"
                yield f"· {self._name(event.case_id)}: {pace}"
            case TrainingEpoch():
                yield f"· {epoch_line(event)}"
            case events.BlockFinished():
                yield f"· block {event.block + 1}: {event.duration_s:.1f} s, {self._left()}"
            case events.Noted() if event.fact.severity is Severity.INFO:
                yield f"· {printable(describe(event.fact))}"
            case _:
                yield from filter(None, [self._line(event)])


class _Live(RunProgress):
    """A rich progress bar over the budget; repaints only between samples, from the events themselves."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._bar: Any = None
        self._task: Any = None
        self._block = 0

    def step(self, what: Fact) -> None:
        self._show(describe(what))

    def _show(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=self._clock() - self._started)
            self._bar.refresh()
        else:
            click.echo(click.style(f"· {text}", dim=True), err=True)

    def observe(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._begin(event)
                self._open()
            case TrainingEpoch():
                self._epoch = event
            case TrainingUse():
                self._show(use_line(event, self._epoch))
            case events.BlockStarted():
                self._block = event.block + 1
                self._show(f"block {self._block}")
            case events.CaseFinished():
                self._show(f"block {self._block} · {self._name(event.case_id)}")
            case events.RunFinished() if self._bar is not None:
                self._bar.stop()
                self._bar = None
            case _:
                if line := self._line(event):
                    self._print(line)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), TextColumn("at most"), TimeRemainingColumn()) if self._budget_s else (text,)
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,  # a refresh thread would run beside the samples
        )
        self._task = self._bar.add_task("starting", total=self._budget_s or None)
        self._bar.start()

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)
