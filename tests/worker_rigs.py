"""Workers whose benchmarks do what they should not: plain Python in a small tree, measured by real processes."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

import psutil

from perfguard.records.events import BlockFinished, CaseFinished
from perfguard.records.plan import CasePlan, MeasureSettings
from perfguard.records.run import CaseFailed
from perfguard.runner.process.arm_worker import ArmWorker
from tests.real_workers import BOTH, greeted, measure, plain_case, starter_in
from tests.tiny_projects import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perfguard.records.events import Event
    from perfguard.records.protocol import Message
    from perfguard.records.run import Arm

SETTINGS = MeasureSettings(sample_s=0.002, samples=2, warmups=1, budget_s=60, max_blocks=2)
IMPATIENT = MeasureSettings(
    sample_s=0.002, samples=2, budget_s=300, max_blocks=2, setup_timeout_s=10, sample_timeout_s=5
)
GOOD = """
def good():
    return lambda: float(sum(range(1000)))
"""


class Rig:
    """Workers of two arms on the same directory, whose `bench.py` holds some source and a function `good`."""

    def __init__(self, place: Path, source: str, settings: MeasureSettings) -> None:
        self.place = place
        self.starter = starter_in(place, settings, arms=BOTH, files={"bench.py": textwrap.dedent(source) + GOOD})

    @property
    def tree(self) -> Path:
        return self.place / "tree"

    @property
    def folder(self) -> Path:
        return self.starter.folder

    def worker(self) -> AbstractContextManager[tuple[ArmWorker, Message]]:
        return greeted(self.starter, ArmWorker, {"import_torch": False}, calibrate=False)

    def measure(self, *names: str, arms: Sequence[Arm] = BOTH) -> list[Event]:
        plans = [CasePlan(case=plain_case(name), inner_loops=2, iteration_s=0.001) for name in names]
        finished, events = measure(self.starter, plans, arms)
        assert finished == sum(isinstance(event, BlockFinished) for event in events)
        return events

    def survivors(self) -> list[psutil.Process]:
        """Live processes whose command line or environment names a path of this rig; the killed get a moment."""
        wait_for(lambda: not self._living(), seconds=60.0)
        return self._living()

    def _living(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                said = " ".join(process.cmdline()) + " ".join(process.environ().values())
                if str(self.place) in said and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


def failures(events: Iterable[Event]) -> dict[str, CaseFailed]:
    """By case."""
    return {event.case_id: event for event in events if isinstance(event, CaseFailed)}


def completed(events: Iterable[Event]) -> list[str]:
    """A case for each block that it came through."""
    return [event.case_id for event in events if isinstance(event, CaseFinished)]
