"""Suites in the shapes that asv, pytest-benchmark and torch.utils.benchmark document, run by real children."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from perfguard.records.plan import CasePlan, MeasureSettings
from perfguard.records.spec import expand
from perfguard.runner.measuring import needs_torch
from perfguard.runner.process.arm_worker import ArmWorker
from perfguard.runner.suites import Adopted, Suites, adopt
from tests.real_workers import BOTH, greeted, measure, starter_in

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perfguard.records.events import Event
    from perfguard.records.protocol import Message
    from perfguard.records.run import Arm
    from perfguard.records.spec import Case

SETTINGS = MeasureSettings(sample_s=0.002, samples=2, warmups=1, budget_s=60, max_blocks=1)

ASV_CONFIGURATION = """
{
    // The version of the config file format.
    "version": 1,
    "project": "tiny",  // a name
    "repo": "https://example.org/tiny.git",
    /* "benchmark_dir": "elsewhere", */
    "benchmark_dir": "benchmarks",
}
"""


class AdoptedSuite:
    """A tree with a suite in it, and workers of two arms on it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.starter = starter_in(place, SETTINGS, arms=BOTH)

    @property
    def tree(self) -> Path:
        return self.place / "tree"

    def write(self, name: str, text: str) -> None:
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def asv(self, text: str, *, name: str = "benchmarks/suite.py") -> Adopted:
        """What is found in an asv suite of one module."""
        self.write("asv.conf.json", ASV_CONFIGURATION)
        self.write("benchmarks/__init__.py", "")
        self.write(name, text)
        return self.found(Suites(asv="asv.conf.json"))

    def tests(self, text: str) -> Adopted:
        """What is found in a file of tests."""
        self.write("tests/test_speed.py", text)
        return self.found(Suites(pytest=("tests/test_*.py",)))

    def timers(self, text: str) -> Adopted:
        """What is found in a file of timers."""
        self.write("bench/timers.py", text)
        return self.found(Suites(timer=("bench/*.py",)))

    def found(self, suites: Suites) -> Adopted:
        return adopt(self.tree, suites, sys.executable)

    def worker(self, *, torch: bool = False) -> AbstractContextManager[tuple[ArmWorker, Message]]:
        return greeted(self.starter, ArmWorker, {"import_torch": torch}, calibrate=False)

    def measure(self, *cases: Case, instances: int = 1, arms: tuple[Arm, ...] = BOTH) -> list[Event]:
        """Measure a block of some cases."""
        plans = [CasePlan(case=case, inner_loops=2, iteration_s=0.001, instances=instances) for case in cases]
        _, events = measure(self.starter, plans, arms)
        return events


def cases_of(found: Adopted) -> dict[str, Case]:
    """All cases by id."""
    return {case.id: case for spec in found.benchmarks for case in expand(spec)}


def imports_torch(found: Adopted) -> bool:
    return needs_torch(list(cases_of(found).values()))
