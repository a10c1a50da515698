"""The example recording, written bit by bit into a folder that a test watches."""

from __future__ import annotations

from pathlib import Path

from perfguard.watch.sources.event_sources import LocalSource
from perfguard.watch.view.run_view import CaseView, RunView
from perfguard.watch.view.watching import RunWatch
from tests.recorded_runs import DATA, STARTED

PAIRED = DATA / "paired"
LINES = (PAIRED / "events.jsonl").read_bytes().splitlines(keepends=True)


class Clock:
    """The reader's clock; stands a second behind the run's start until it is moved."""

    def __init__(self) -> None:
        self.now_s = STARTED + 1.0

    def __call__(self) -> float:
        return self.now_s


def polled(folder: Path, clock: Clock | None = None) -> RunWatch:
    """A watch of a run that has read all there is."""
    watch = RunWatch(LocalSource(folder), clock or Clock())
    watch.poll()
    while watch.is_behind:
        watch.poll()
    return watch


def case_of(view: RunView, case_id: str) -> CaseView:
    """The row of a case."""
    return next(case for case in view.cases if case.case_id == case_id)


def first(event: bytes, *, after: int = 0) -> int:
    """Number of lines up to and with the first one of an event."""
    prefix = b'{"event":"' + event + b'"'
    return next(number for number, line in enumerate(LINES) if number >= after and line.startswith(prefix)) + 1
