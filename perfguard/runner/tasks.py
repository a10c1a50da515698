"""One measurement of a task: its process is started, watched and ended; whatever happens to it becomes a row."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from perfguard.codec import from_builtins, to_json
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.task_results import CellRun, MeasuredQuality, MeasuredSpeed, MeasuredTraining, TaskLoaded
from perfguard.records.tasks import Hardware, TaskJob
from perfguard.runner.process.json_lines import json_lines
from perfguard.runner.process.launching import launched

LOADS_S = 900.0  # Longest loading: the first compilation of a large model takes minutes
SILENT_S = 25.0  # Longest time without an answer, once the model is loaded
_COMMAND = [sys.executable, "-W", "default", "-m", "perfguard.tasks.child.main"]
"""A framework's own warnings are no errors, whatever the user has set."""


class Watch(Struct, frozen=True, kw_only=True):
    """Where a job runs, and when it counts as hung."""

    cpus: tuple[int, ...]
    environment: Mapping[str, str]
    wants_stop: Callable[[], bool] = lambda: False
    silent_s: float = SILENT_S
    loads_s: float = LOADS_S


def measure_cell(job: TaskJob, watch: Watch, *, number: int, place: str) -> CellRun:
    """Run a job in a process of its own: the `number`-th round of its cell, whose logs are recorded as `place`."""
    logs = Path(job.logs)
    logs.mkdir(parents=True, exist_ok=True)
    began_at = time.time()
    found: dict[str, Any] = {}
    with (
        _load_on(watch.cpus[:1] if job.cell.hardware is Hardware.LOADED else ()),
        (logs / "process.log").open("wb") as errors,
        subprocess.Popen(
            launched(_COMMAND, cpus=watch.cpus),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**watch.environment, **_threads(job.cell.threads)},
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            process.stdin.write(to_json(job).encode())
            process.stdin.close()
            problem = _listen(process, process.stdout, watch, found)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever the model has started
    known = {name: found.get(name) for name in _TYPES}
    if problem is None and not found.keys() & _RESULTS:
        problem = _ended(process.returncode, logs / "process.log")
    return CellRun(
        cell=job.cell,
        scenario=job.scenario,
        mode=job.mode,
        round=number,
        logs=place,
        began_at=began_at,
        ended_at=time.time(),
        problem=problem,
        test=job.test,
        **known,
    )


@contextlib.contextmanager
def _load_on(cpus: tuple[int, ...]) -> Iterator[None]:
    """Something that computes on some CPUs meanwhile; nothing where there are none."""
    if not cpus:
        yield
        return
    with subprocess.Popen(launched([sys.executable, "-c", "while True: pass"], cpus=cpus)) as load:
        try:
            yield
        finally:
            load.kill()


_TYPES: dict[str, type] = {
    "loaded": TaskLoaded,
    "speed": MeasuredSpeed,
    "quality": MeasuredQuality,
    "training": MeasuredTraining,
}
_RESULTS = _TYPES.keys() - {"loaded"}


def _listen(process: subprocess.Popen[bytes], out: IO[bytes], watch: Watch, found: dict[str, Any]) -> Fact | None:
    """Take lines until the process ends; gives why it could not measure, as far as it is known."""
    problem: Fact | None = None
    heard = time.monotonic()
    for line in json_lines(out):
        limit_s = watch.silent_s if found else watch.loads_s
        is_silent = line is None and time.monotonic() - heard > limit_s
        if watch.wants_stop() or is_silent:
            process.kill()
            if watch.wants_stop():
                return fact("task.interrupted")
            return fact("task.silent", severity=Severity.GRAVE, limit_s=limit_s, is_loaded=bool(found))
        if line is None:
            continue
        heard = time.monotonic()
        kind, value = line["kind"], line["value"]
        if kind in _TYPES:
            found[kind] = from_builtins(value, _TYPES[kind], source=f"the process that measures ({kind})")
        elif kind == "refused":
            problem = fact("task.refused", severity=Severity.NOTABLE, reason=str(value))
        elif kind == "error":
            problem = fact("task.failed", severity=Severity.GRAVE, error=str(value))
    process.wait()
    return problem


def _ended(returncode: int, log: Path) -> Fact:
    """Why a process ended without a word."""
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    name = signal.Signals(-returncode).name if returncode < 0 else None
    return fact(
        "task.crashed",
        severity=Severity.GRAVE,
        signal=name,
        exit_code=None if name else returncode,
        last_line=said[-1][:200] if said else None,
    )


def _threads(count: int) -> dict[str, str]:
    """What makes libraries start that many threads and not one for each CPU."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(count))
