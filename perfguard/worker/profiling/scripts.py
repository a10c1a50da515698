"""A user's training script, run as Python runs it and held at its step boundaries.

A step ends when `Optimizer.step` has returned. Some returns end no step: those of a further optimizer, whose updates
are part of a step of the first one, and those of an optimizer that is called by another. At a boundary the script waits
until the parent says how the next step is to be looked at, so two scripts can take turns as two workers with cases do.

torch is imported before the script: environment variables that are to change torch have to be set outside of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import runpy
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from perfguard.records.protocol import Message, ScriptExit, StepKind
from perfguard.worker.pipes import Control
from perfguard.worker.profiling.profiler import SETTLING_STEPS, StepProfiler
from perfguard.worker.profiling.script_checks import FirstSteps
from perfguard.worker.profiling.script_settings import ScriptSettings
from perfguard.worker.results import seed_everything
from perfguard.worker.timing.samples import settle

_HOOK = "profile_hook_step"  # Optimizer's method that wraps a class's `step`
_HOOKED = "hooked"  # Attribute by which torch knows a `step` that it has wrapped


class ScriptEnded(BaseException):
    """Raised in a script whose further steps nobody wants to see; passes those that catch every Exception."""


def profile_script(command: Message, control: Control, profiler: StepProfiler) -> None:
    """Run a script and profile those of its steps that the parent asks for.

    The command has `path`, `arguments`, and `skip`: steps before the first boundary at which the script waits. With a
    `seed`, random numbers are seeded before the script runs. The settings of the arm are made.

    Raises OSError: a trace or log cannot be written; ForeignProfilerError: the script runs a profiler itself. In both
    cases the script has been ended.
    """
    settings = ScriptSettings.of_arm()
    held = StepBoundaries(control, profiler, settings, skip=int(command["skip"]))
    try:
        with held.checks.recorded(), settings.applied(), _boundaries(held.boundary):
            if command.get("seed") is not None:
                seed_everything(int(command["seed"]), Path(command["path"]).name)
            found = run_script(command["path"], command["arguments"])
    finally:
        profiler.end()
    if held.failure is not None:
        raise held.failure
    _send_end(control, found, held.steps, settings)


def profile_whole_script(command: Message, control: Control, profiler: StepProfiler) -> None:
    """Run a script from its beginning to its end as one step; for those that never call an optimizer.

    The command has `path`, `arguments`, and `kind`, `trace`, `log` as for a step. Raises OSError where the trace or log
    cannot be written.
    """
    settings = ScriptSettings.of_arm()
    _start(profiler, command)
    try:
        with settings.applied():
            found = run_script(command["path"], command["arguments"])
        measured = profiler.finish()
    finally:
        profiler.end()
    control.send("profiled", **measured)
    _send_end(control, found, 0, settings)


class StepBoundaries:
    """What happens at the boundaries of a script's steps."""

    def __init__(self, control: Control, profiler: StepProfiler, settings: ScriptSettings, *, skip: int) -> None:
        self.steps = 0
        self.checks = FirstSteps()
        self.failure: Exception | None = None
        self._control = control
        self._profiler = profiler
        self._settings = settings
        # Until its first boundary a script sets itself up; that belongs to no step.
        self._skip = max(1, skip)
        self._place = (os.getpid(), threading.get_ident())
        self._optimizer: weakref.ref[Any] | None = None
        self._asked: Message = {}
        self._settling_steps = 0
        self._has_settled = self._is_ending = False

    def boundary(self, optimizer: Any) -> None:
        """The outermost `step` of an optimizer has returned; nothing happens in forked processes and other threads.

        Raises ScriptEnded: the script is to end here.
        """
        if (os.getpid(), threading.get_ident()) != self._place or not self._ends_a_step(optimizer):
            return
        if self._is_ending:
            raise ScriptEnded
        self._settings.end_autocast()
        self.checks.step_ended(optimizer)
        self.steps += 1
        if self.steps < self._skip:
            return
        try:
            self._hold()
        except Exception as error:  # noqa: BLE001 - the script must not see, let alone catch, what fails here
            self.failure = error
            self._end()

    def _ends_a_step(self, optimizer: Any) -> bool:
        """Whether this optimizer's updates end the steps: those of the first do, as long as it lives."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        return self._optimizer() is optimizer

    def _hold(self) -> None:
        if self._settling_steps:
            self._settling_steps -= 1
            if not self._settling_steps:
                _start(self._profiler, self._asked)
            return
        settle()  # threads of this arm must not run beside the other's step
        if self._profiler.is_open:
            self._control.send("profiled", step=self.steps, **self._profiler.finish())
        else:
            uses = [asdict(use) for use in self._settings.uses()]
            done = {"checks": self.checks.numbers, "dtypes": sorted(self.checks.dtypes)}
            self._control.send("waiting", step=self.steps, settings=uses, **done)
        command = self._control.receive()
        if command is None or command["do"] != "step":  # the script is to stop, or the parent has gone
            self._end()
        self._asked = command
        if command["kind"] == StepKind.BARE or self._has_settled:
            _start(self._profiler, command)
        else:
            self._profiler.ready(StepKind(command["kind"]))
            self._settling_steps, self._has_settled = SETTLING_STEPS, True

    def _end(self) -> NoReturn:
        self._is_ending = True
        raise ScriptEnded


def _start(profiler: StepProfiler, command: Message) -> None:
    trace, log = (None if command.get(name) is None else Path(command[name]) for name in ("trace", "log"))
    profiler.start(StepKind(command["kind"]), trace=trace, log=log)


def _send_end(control: Control, found: ScriptExit, steps: int, settings: ScriptSettings) -> None:
    uses = [asdict(use) for use in settings.uses()]
    control.send("ended", **asdict(found), steps=steps, settings=uses, affinity=sorted(os.sched_getaffinity(0)))


@contextlib.contextmanager
def _boundaries(boundary: Callable[[Any], None]) -> Iterator[None]:
    """Call `boundary` whenever the outermost `step` of an optimizer has returned.

    A global post hook would be called inside torch's own event `Optimizer.step#…`, whose end a profiler that stops
    there never sees. So what torch wraps the `step` of each class in, when its first optimizer is made, is wrapped once
    more.
    """
    from torch.optim import Optimizer

    wrap = _BoundaryWrapper(_never_compiled(boundary))
    hook_step: Any = Optimizer.__dict__[_HOOK]
    for kind in _subclasses(Optimizer):
        if getattr(kind.__dict__.get("step"), _HOOKED, False):
            kind.step = wrap(kind.__dict__["step"])
    setattr(Optimizer, _HOOK, staticmethod(lambda step: wrap(hook_step.__func__(step))))
    try:
        yield
    finally:
        setattr(Optimizer, _HOOK, hook_step)
        for kind in _subclasses(Optimizer):
            wrapped = wrap.wrapped.get(kind.__dict__.get("step"))
            if wrapped is not None:
                setattr(wrapped, _HOOKED, True)
                kind.step = wrapped


class _BoundaryWrapper:
    """Wraps functions that make a step, and calls `boundary` when the outermost one has returned."""

    def __init__(self, boundary: Callable[[Any], None]) -> None:
        self.wrapped: dict[object, Callable[..., Any]] = {}
        self._boundary = boundary
        self._depth = 0

    def __call__(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def step_and_boundary(optimizer: Any, *arguments: Any, **named: Any) -> Any:
            self._depth += 1
            try:
                result = step(optimizer, *arguments, **named)
            finally:
                self._depth -= 1
            if not self._depth:
                self._boundary(optimizer)
            return result

        self.wrapped[step_and_boundary] = step
        return step_and_boundary


def _subclasses(kind: Any) -> set[Any]:
    return {each for direct in kind.__subclasses__() for each in (direct, *_subclasses(direct))}


def _never_compiled(call: Callable[[Any], None]) -> Callable[[Any], None]:
    """A function that torch's compiler does not compile; the compiler is never imported for it."""
    disabled: Callable[[Any], None] | None = None

    def outside(argument: Any) -> None:
        nonlocal disabled
        dynamo = sys.modules.get("torch._dynamo")
        if disabled is None and dynamo is not None:
            disabled = dynamo.disable(call)
        (call if disabled is None else disabled)(argument)

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]  # noqa: SLF001 - as torch.compiler.disable marks it
    return outside


def run_script(path: str, arguments: Sequence[str]) -> ScriptExit:
    """Run a file as `__main__`, with its arguments and with its own directory first on the import path.

    A process that the script forks ends where the script does, as it would without perfguard.
    """
    process = os.getpid()
    found = _run(path, arguments)
    if os.getpid() != process:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(found.exit_code & 0xFF)
    return found


def _run(path: str, arguments: Sequence[str]) -> ScriptExit:
    script = str(Path(path).absolute())
    argv, import_path = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except ScriptEnded:
        return ScriptExit(exit_code=0, was_ended=True)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return ScriptExit(exit_code=stop.code or 0)
        print(stop.code, file=sys.stderr)  # noqa: T201 - as Python does with anything else
        return ScriptExit(exit_code=1)
    except BaseException as error:  # noqa: BLE001 - whatever a script raises is its result
        text = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        return ScriptExit(exit_code=1, problem=text[:300], detail=_traceback(error, script)[-8000:])
    finally:
        sys.argv, sys.path[:] = argv, import_path
    return ScriptExit(exit_code=0)


def _traceback(error: BaseException, script: str) -> str:
    """The traceback without the frames that led to the script; all of it where none of its frames is in it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, frame or error.__traceback__)
    return "".join(lines)
