"""How workers of an arm are started; the only place that knows their command lines."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfguard.records.plan import BlockPlan, MeasureSettings, ResolvedArm
from perfguard.records.run import Arm
from perfguard.runner.process.bundle import START_SCRIPT
from perfguard.runner.process.worker_process import Launch, Worker, WorkerProcess

CALIBRATION_MIN_TIME_S = 0.02
"""pyperf doubles its loops until one value takes this long."""
_OUTPUT = ("raw", "profiles")
"""Folders of a run that workers write to."""


class Starter(Protocol):
    """Starts workers; the seam between measuring and processes."""

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A fresh worker of an arm that measures by the settings; with None it calibrates."""
        ...

    def start_control(self) -> Worker:
        """The control workload, which lives as long as the run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What everything that works with workers gets from outside."""

    starter: Starter
    """Starts workers."""
    settings: MeasureSettings
    """Samples, budget, timeouts, seed."""
    cpus: tuple[int, ...]
    """Affinity mask of the workers."""
    should_stop: Callable[[], bool] = lambda: False
    """True once the user wants the run to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarter:
    """Starts real, pinned processes."""

    arms: dict[Arm, ResolvedArm]
    """The arms that can be started."""
    environments: dict[Arm, dict[str, str]]
    """Their padded environments."""
    cpus: tuple[int, ...]
    """Affinity mask."""
    memory_node: int | None
    """NUMA node that memory is bound to."""
    folder: Path
    """The run's folder, absolute."""
    control_bundle: str
    """Bundle that the control workload is started from."""

    def start(self, arm: Arm, block: BlockPlan, settings: MeasureSettings | None) -> Worker:
        """A fresh process of an arm with the block's hash seed."""
        resolved = self.arms[arm]
        code = "a" if arm is Arm.BASELINE else "b"  # equally long: the command line shifts the stack too
        label = self._calibration_label(code) if settings is None else f"{block.index:04d}"
        raw = self.folder / "raw" / f"{label}-{code}.json"
        return WorkerProcess(
            Launch(
                arguments=(
                    resolved.interpreter,
                    str(Path(resolved.bundle) / START_SCRIPT),
                    "perfguard.worker",
                    *_pyperf_options(settings),
                    "--affinity",
                    ",".join(map(str, self.cpus)),
                    "-o",
                    str(raw),
                ),
                environment={**self.environments[arm], "PYTHONHASHSEED": str(block.hash_seed)},
                directory=resolved.tree or str(self.folder),
                cpus=self.cpus,
                memory_node=self.memory_node,
                log=self.folder / "logs" / f"{label}-{code}.log",
                writable=self._writable(resolved),
            )
        )

    def _writable(self, arm: ResolvedArm) -> tuple[str, ...] | None:
        """The arm's own folders, and those that pyperf and the profiler write to; the verdict is in neither."""
        if arm.writable is None:
            return None
        folders = [self.folder / name for name in _OUTPUT]
        for folder in folders:
            folder.mkdir(exist_ok=True)  # rights are given to folders that exist
        return (*arm.writable, *map(str, folders))

    def _calibration_label(self, code: str) -> str:
        """A name that no worker of this run has taken: a run may calibrate twice, and a worker may have crashed."""
        labels = (f"calibrate{number}" for number in itertools.count(1))
        return next(label for label in labels if not (self.folder / "logs" / f"{label}-{code}.log").exists())

    def start_control(self) -> Worker:
        """The control workload in perfguard's own interpreter, on the same CPUs."""
        return WorkerProcess(
            Launch(
                arguments=(sys.executable, str(Path(self.control_bundle) / START_SCRIPT), "perfguard.worker.control"),
                environment={"PYTHONPATH": self.control_bundle, "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
                directory=str(self.folder),
                cpus=self.cpus[:1],
                memory_node=self.memory_node,
                log=self.folder / "logs" / "control.log",
            )
        )


def _pyperf_options(settings: MeasureSettings | None) -> tuple[str, ...]:
    common = ("--worker", "-q")
    if settings is None:
        return (*common, "--calibrate-loops", "--min-time", str(CALIBRATION_MIN_TIME_S), "-w", "1", "-n", "1")
    return (*common, "-l", "1", "-w", str(settings.warmups), "-n", str(settings.samples))
