"""Profiled steps: one call of a prepared case, or one step of a script, looked at in the way that is asked for.

The profiler makes a step slower, so its times are only ever compared with those of other profiled steps, and bare steps
beside them tell by how much. No timed sample runs in a process that profiles.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from perfguard.records.protocol import STEP_WINDOW, Message, StepKind
from perfguard.worker.cases import PreparedCase
from perfguard.worker.profiling.chrome_trace import export, profiler
from perfguard.worker.profiling.compile_events import CompileEvents
from perfguard.worker.profiling.library_logs import LibraryLogs
from perfguard.worker.profiling.lines import LineMarks
from perfguard.worker.profiling.modules import ModuleHooks, annotation_type
from perfguard.worker.profiling.overhead import EventCost, measure_event_cost

SETTLING_STEPS = 2
"""Steps after the hooks were first installed or removed: names of modules become known, compilers meet the hooks."""

_WALL, _THREAD, _PROCESS = time.perf_counter, time.thread_time, time.process_time
"""Bound before any code under test is imported, which may replace those in `time`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clocks:
    wall_s: float
    thread_s: float
    process_s: float
    minor_faults: int


@dataclass(slots=True, kw_only=True)
class _OpenStep:
    """A step that is being looked at."""

    kind: StepKind
    trace: Path | None
    closing: ExitStack
    profiled: Any
    logs: tuple[str, ...]
    compiled: CompileEvents
    began: _Clocks


class ForeignProfilerError(RuntimeError):
    """The program under test runs a profiler: torch ends it where another one begins, so neither tells the truth."""

    is_plain = True


class StepProfiler:
    """Looks at one step at a time, from its start to its finish, which need not be in one function."""

    def __init__(self) -> None:
        self._hooks = ModuleHooks()
        self._logs = LibraryLogs()
        self._step: _OpenStep | None = None
        self._cost: EventCost | None = None

    @property
    def is_open(self) -> bool:
        """Whether a step has started and not finished."""
        return self._step is not None

    def ready(self, kind: StepKind) -> None:
        """Do for a kind of step what must not fall into it; once it is done, this costs next to nothing.

        Raises:
            ForeignProfilerError: The program runs a profiler.
        """
        _refuse_a_foreign_profiler()
        if kind is StepKind.BARE:
            self._hooks.remove()
            return
        if self._cost is None:
            self._cost = measure_event_cost(
                self._hooks
            )  # also the first use of the profiler, which loads what it needs
        self._hooks.install()
        self._hooks.close()

    def start(
        self,
        kind: StepKind,
        *,
        trace: Path | None = None,
        log: Path | None = None,
        warm: Callable[[], object] | None = None,
    ) -> None:
        """Begin a step.

        Args:
            kind: How to look at it.
            trace: Takes the Chrome trace; needed for all kinds but `bare`.
            log: Takes what oneDNN and MKL print; needed for `joined`.
            warm: Called right before, untimed: what lies between two steps (a trace is written, objects are collected)
                leaves cold caches behind.

        Raises:
            OSError: The log cannot be written.
            ForeignProfilerError: The program runs a profiler.
        """
        self.abort()
        self.ready(kind)
        compiled = CompileEvents()
        profiled: Any = None
        logs: tuple[str, ...] = ()
        with ExitStack() as opening:
            opening.enter_context(_without_collections())
            if warm is not None and kind is not StepKind.TRACE:
                warm()
            if log is not None:
                logs = opening.enter_context(self._logs.into(log))
            if kind is not StepKind.BARE:
                profiled = opening.enter_context(profiler(memory=kind is StepKind.JOINED))
                if warm is not None and kind is StepKind.TRACE:
                    warm()  # the profiler's start is cold work, too; what it records of this is in no step's window
                opening.enter_context(annotation_type()(STEP_WINDOW))
            if kind is StepKind.WHERE:
                opening.enter_context(LineMarks())
            closing = opening.pop_all()
        self._step = _OpenStep(
            kind=kind, trace=trace, closing=closing, profiled=profiled, logs=logs, compiled=compiled, began=_now()
        )

    def finish(self) -> Message:
        """End the step; what it took and where its trace is, as fields of the reply.

        Raises:
            OSError: The trace cannot be written.
        """
        ended = _now(wall_first=True)
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("no step has been started")
        step.closing.close()
        if step.profiled is not None and step.trace is not None:
            export(step.profiled, step.trace)
        cost = None if step.profiled is None else self._cost
        return {
            "kind": step.kind.value,
            "wall_s": ended.wall_s - step.began.wall_s,
            "thread_s": ended.thread_s - step.began.thread_s,
            "process_s": ended.process_s - step.began.process_s,
            "minor_faults": ended.minor_faults - step.began.minor_faults,
            "event_s": None if cost is None else cost.event_s,
            "own_share": None if cost is None else cost.own_share,
            "module_s": None if cost is None else cost.module_s,
            "logs": list(step.logs),
            "compile_events": step.compiled.so_far(),
            "affinity": sorted(os.sched_getaffinity(0)),
        }

    def abort(self) -> None:
        """Leave a step that cannot be finished; the profiler, the descriptors and the collector are as before."""
        step, self._step = self._step, None
        if step is not None:
            step.closing.close()

    def end(self) -> None:
        """Leave nothing behind."""
        self.abort()
        self._hooks.remove()


class CaseProfiler:
    """Profiles calls of prepared cases."""

    def __init__(self, steps: StepProfiler) -> None:
        self._steps = steps
        self._settled: set[tuple[str, bool]] = set()

    def profile(self, case: PreparedCase, kind: StepKind, *, trace: Path | None, log: Path | None) -> Message:
        """Call a case once, after the calls that it needs to settle, and say what the call took.

        Raises:
            UnsoundCaseError: The call's result is not finite.
            OSError: The trace or the log cannot be written.
        """
        call = case.calls[0]
        self._settle(case.id, call, kind)
        self._steps.start(kind, trace=trace, log=log, warm=call)
        try:
            result = call()
            told = self._steps.finish()
        finally:
            self._steps.abort()
        case.check_last(result)
        return told

    def _settle(self, case_id: str, call: Callable[[], object], kind: StepKind) -> None:
        """Call the case untimed, the last time as it will be timed, when it is first seen with or without hooks."""
        state = (case_id, kind is not StepKind.BARE)
        if state in self._settled:
            return
        self._steps.ready(kind)
        for _ in range(SETTLING_STEPS - 1):
            call()
        if kind is StepKind.BARE:
            call()
        else:
            with profiler():
                call()
        self._settled.add(state)
        # torch brings 165,000 objects; frozen, they are not gone through before each step.
        gc.collect()
        gc.freeze()


def _refuse_a_foreign_profiler() -> None:
    import torch

    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
        raise ForeignProfilerError(
            "the program runs torch's profiler itself, which cannot run twice in a process; switch it off for this"
        )


def _now(*, wall_first: bool = False) -> _Clocks:
    """All clocks; the wall clock next to the step, since the others cost a system call each."""
    wall_s = _WALL() if wall_first else 0.0
    process_s, thread_s = _PROCESS(), _THREAD()
    minor_faults = getrusage(RUSAGE_SELF).ru_minflt
    return _Clocks(
        wall_s=wall_s if wall_first else _WALL(), thread_s=thread_s, process_s=process_s, minor_faults=minor_faults
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
