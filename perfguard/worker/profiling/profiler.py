"""Profiled steps: one call of a prepared case, or one step of a script, looked at in the way that is asked for.

The profiler makes a step slower, so its times are only ever compared with those of other profiled steps, and bare steps
beside them tell by how much. No timed sample runs in a process that profiles.
"""

from __future__ import annotations

import gc
import gzip
import json
import operator
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Any, NamedTuple

from perfguard.records.protocol import STEP_WINDOW, Message, StepKind
from perfguard.worker.cases import PreparedCase
from perfguard.worker.profiling.compile_events import CompileEvents
from perfguard.worker.profiling.library_logs import LibraryLogs
from perfguard.worker.profiling.lines import LineMarks
from perfguard.worker.profiling.modules import ModuleHooks, annotation_type

SETTLING_STEPS = 2
"""Steps after the hooks were first installed or removed: names of modules become known, compilers meet the hooks."""

_WALL, _THREAD, _PROCESS = time.perf_counter, time.thread_time, time.process_time
"""Bound before any code under test is imported, which may replace those in `time`."""
_OTHER_CLOCKS = ("process_s", "thread_s", "minor_faults")


class _OpenStep(NamedTuple):
    """A step that is being looked at."""

    kind: StepKind
    trace: Path | None
    closing: ExitStack
    profiled: Any
    logs: tuple[str, ...]
    compiled: CompileEvents
    others: tuple[float, float, int]  # Clocks at its start, as `_other_clocks` gives them
    wall_s: float  # The wall clock, read last


class ForeignProfilerError(RuntimeError):
    """The program under test runs a profiler: torch ends it where another one begins, so both would be wrong."""

    is_plain = True


class StepProfiler:
    """Looks at one step at a time, from its start to its finish, which need not be in one function."""

    def __init__(self, changed: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        """`changed` are first and last lines that a change touches, by path in the working directory."""
        self._changed = {os.path.realpath(path): lines for path, lines in (changed or {}).items()}
        self._hooks = ModuleHooks()
        self._logs = LibraryLogs()
        self._step: _OpenStep | None = None
        self._cost: EmptyEventCost | None = None

    @property
    def is_open(self) -> bool:
        """Whether a step has started and not finished."""
        return self._step is not None

    def ready(self, kind: StepKind) -> None:
        """Do for a kind of step what must not fall into it; once it is done, this costs next to nothing.

        Raises ForeignProfilerError: the program runs a profiler.
        """
        import torch

        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
            raise ForeignProfilerError(
                "the program runs torch's profiler itself, which cannot run twice in a process; switch it off for this"
            )
        if kind is StepKind.BARE:
            self._hooks.remove()
            return
        if self._cost is None:  # also the first use of the profiler, which loads what it needs
            self._cost = measure_event_cost(self._hooks)
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
        """Begin a step, and look at it in this `kind` of way.

        `trace` takes the Chrome trace; all kinds but `bare` need it. `log` takes what oneDNN and MKL print; `joined`
        needs it. `warm` is called right before, untimed: what lies between two steps (a trace is written, objects are
        collected) leaves cold caches behind.

        Raises OSError: the log cannot be written; ForeignProfilerError: the program runs a profiler.
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
                opening.enter_context(LineMarks(changed=self._changed))
            closing = opening.pop_all()
        self._step = _OpenStep(kind, trace, closing, profiled, logs, compiled, _other_clocks(), _WALL())

    def finish(self) -> Message:
        """End the step; what it took and where its trace is, as fields of the reply.

        Raises OSError: the trace cannot be written.
        """
        ended_s, others = _WALL(), _other_clocks()
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("no step has been started")
        step.closing.close()
        if step.profiled is not None and step.trace is not None:
            export(step.profiled, step.trace)
        cost = (None, None, None) if step.profiled is None or self._cost is None else self._cost
        return {
            "kind": step.kind.value,
            "wall_s": ended_s - step.wall_s,
            **dict(zip(_OTHER_CLOCKS, map(operator.sub, others, step.others), strict=True)),
            **dict(zip(EmptyEventCost._fields, cost, strict=True)),
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
        self.steps = steps
        self._settled: set[tuple[str, bool]] = set()

    def profile(self, case: PreparedCase, kind: StepKind, *, trace: Path | None, log: Path | None) -> Message:
        """Call a case once, after the calls that it needs to settle, and say what the call took.

        Raises UnsoundCaseError: the call's result is not finite; OSError: the trace or the log cannot be written.
        """
        call = case.calls[0]
        self._settle(case.id, call, kind)
        self.steps.start(kind, trace=trace, log=log, warm=call)
        try:
            result = call()
            measured = self.steps.finish()
        finally:
            self.steps.abort()
        case.check_last(result)
        return measured

    def _settle(self, case_id: str, call: Callable[[], object], kind: StepKind) -> None:
        """Call the case untimed, the last time as it will be timed, when it is first seen with or without hooks."""
        state = (case_id, kind is not StepKind.BARE)
        if state in self._settled:
            return
        self.steps.ready(kind)
        for _ in range(SETTLING_STEPS - 1):
            call()
        with nullcontext() if kind is StepKind.BARE else profiler():
            call()
        self._settled.add(state)
        # torch brings 165,000 objects; frozen, they are not gone through before each step.
        gc.collect()
        gc.freeze()


def _other_clocks() -> tuple[float, float, int]:
    """CPU seconds of the process and of this thread, and page faults; each costs a system call."""
    return _PROCESS(), _THREAD(), getrusage(RUSAGE_SELF).ru_minflt


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


def profiler(*, memory: bool = False) -> Any:
    """A profiler of this thread's ops with their shapes, as a context manager.

    Python's stacks are left out: they name functions, not lines, and with torch 2.6 on Python 3.13 they crash
    (https://github.com/pytorch/pytorch/issues/144094). Nor does it gather events of several cycles, for which torch
    makes Python objects of all of them when it ends: that took three times as long as the step of a small network.
    With `memory`, each allocation is recorded too.
    """
    import torch

    # torch 2.10 to 2.12 warn of that even where there is one cycle (https://github.com/pytorch/pytorch/issues/180348).
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=memory
    )


def export(profiled: Any, path: Path) -> None:
    """Write the Chrome trace of a profiler that has ended; compressed where the name ends in `.gz`.

    Raises OSError: the file cannot be written.
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    profiled.export_chrome_trace(str(plain))
    if not plain.is_file():  # Kineto only logs that it could not write
        raise OSError(f"the trace could not be written to {plain}; is the disk full or the folder read-only?")
    if plain != path:
        # Traces are repetitive: the highest level takes three times as long for a few per cent.
        with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=4) as target:
            shutil.copyfileobj(source, target, 1024 * 1024)
        plain.unlink()


UNKNOWN_SHARE = 0.2  # Where the measurement gives nothing

_EMPTY_OP = "aten::resolve_conj"
"""Returns its argument: about 60 ns with the profiler, which shows the shapes of a tensor as it does for other ops."""
_GROUPS = 7
_EVENTS = 300


class EmptyEventCost(NamedTuple):
    """The profiler's cost for one event, in a loop that does nothing else; in a step, caches are colder.

    An event begins when the profiler has taken its first time stamp and ends when it takes the second; what the
    profiler does before and after goes to the event around it.
    """

    event_s: float  # Seconds for an op's event, inside and outside together
    own_share: float  # Part of it inside the event, 0 to 1
    module_s: float  # Seconds for the event of a module, with its Python hooks, which cost several times as much


def measure_event_cost(hooks: ModuleHooks) -> EmptyEventCost:
    """Time ops and a module that do nothing, with and without the profiler; the hooks are removed afterwards."""
    import torch

    tensor, module = torch.zeros(1), torch.nn.Identity()
    groups: tuple[Callable[[], object], ...] = (lambda: torch.resolve_conj(tensor), lambda: module(tensor))
    hooks.remove()
    bare_op_s, bare_module_s = map(_time_groups, groups)
    hooks.install()
    with profiler() as running:
        module_s = _time_groups(groups[1])
    with profiler() as running:
        op_s = _time_groups(groups[0])
    hooks.remove()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.json"
        export(running, path)
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    event_s = max(0.0, op_s - bare_op_s)
    return EmptyEventCost(event_s, share_inside(events, event_s), max(0.0, module_s - bare_module_s))


def share_inside(events: Sequence[Mapping[str, Any]], event_s: float) -> float:
    """Part of an event's whole cost `event_s` that the events of empty ops in a trace show (`dur`, microseconds)."""
    shown_s = [float(event.get("dur", 0.0)) * 1e-6 for event in events if event.get("name") == _EMPTY_OP]
    if not shown_s or event_s <= 0:
        return UNKNOWN_SHARE
    return min(1.0, median(shown_s) / event_s)


def _time_groups(call: Callable[[], object]) -> float:
    """Seconds of one call; the median of several groups of them."""
    annotate = annotation_type()
    seconds: list[float] = []
    for _ in range(_GROUPS):
        with annotate("perfguard::outer"):
            started = time.perf_counter()
            for _ in range(_EVENTS):
                call()
            seconds.append(time.perf_counter() - started)
    return median(seconds) / _EVENTS
