"""Profiled steps of a user's own training script, held at its step boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, fact
from perfguard.records.protocol import Message, StepKind
from perfguard.records.run import Arm
from perfguard.runner.blocks.schedule import plan_block
from perfguard.runner.process.arm_worker import CaseRefused, ProfiledStep
from perfguard.runner.process.profiling_worker import ProfilingWorker, ScriptEnd
from perfguard.runner.process.starter import WorkerContext
from perfguard.runner.process.worker_process import WorkerFailure
from perfguard.runner.profiling.cases import ProfiledProcess, StepFiles
from perfguard.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to run, and how much of it is profiled."""

    path: Path
    """The script, absolute."""
    arguments: tuple[str, ...]
    """Its arguments."""
    skip: int
    """Optimizer steps before the first one that is looked at."""
    steps: int
    """Bare and traced steps in each process."""
    timeout_s: float
    """How long its start, or any step of it, may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptProfiling(WorkerContext):
    """What profiling a script needs from outside."""

    folder: Path
    """Takes traces and logs, absolute."""
    processes: int
    """Fresh processes, each of which runs the script from its beginning."""
    progress: Callable[[Fact], None]
    """Gets one line for each process."""


@dataclass(slots=True)
class ProfiledScript:
    """What profiling a script left."""

    processes: list[ProfiledProcess]
    """In the order in which they ran."""
    ready: Message
    """What the first worker said of itself, its software with it."""
    is_whole: bool = False
    """Whether the script makes no optimizer step, so that it was profiled from its beginning to its end."""
    notes: list[str] = field(default_factory=list)
    """How the script ended, where that was before all steps were profiled that had been asked for."""
    failure: str | None = None
    """Why it failed, after steps of it had been profiled; no further process is started then."""


def profile_script(script: Script, profiling: ScriptProfiling) -> ProfiledScript:
    """Run a script in fresh processes and look at some of its steps; it is ended after the last of them.

    What was profiled before a script failed is kept.

    Raises:
        MeasurementError: It cannot be started, or it fails or ends before a step could be looked at.
    """
    found = ProfiledScript(processes=[], ready={})
    profiling.folder.mkdir(parents=True, exist_ok=True)
    for process in range(profiling.processes):
        if profiling.should_stop():
            break
        profiling.progress(
            fact("step.profiling", name=script.path.name, process=process + 1, processes=profiling.processes)
        )
        try:
            with ExitStack() as closing:
                worker = _start(process, profiling, closing, found)
                _one_process(process, script, worker, profiling, found)
        except (CaseRefused, WorkerFailure) as failure:
            found.failure = f"{script.path} cannot be profiled: {failure.reason}\n{failure.detail}".strip()
            if not found.processes:
                raise MeasurementError(found.failure) from failure
        except MeasurementError as failure:
            found.failure = str(failure)
            if not found.processes:
                raise
        if found.failure is not None:
            break
    return found


def _start(process: int, profiling: ScriptProfiling, closing: ExitStack, found: ProfiledScript) -> ProfilingWorker:
    block = plan_block(1, index=process, seed=profiling.settings.seed)
    process_worker = profiling.starter.start(Arm.CANDIDATE, block, None)
    worker = ProfilingWorker(Arm.CANDIDATE, process_worker, profiling.settings)
    closing.callback(worker.close)
    ready = worker.hello_profiler("the worker", cpus=profiling.cpus, collect_software=not found.ready)
    found.ready = found.ready or ready
    return worker


@dataclass(frozen=True, slots=True)
class _Held:
    """A script that is held at its step boundaries, and what it left so far."""

    script: Script
    worker: ProfilingWorker
    folder: Path
    record: ProfiledProcess
    should_stop: Callable[[], bool]

    def steps(self, wanted: Sequence[tuple[StepKind, str]]) -> ScriptEnd | None:
        """Look at the script's next steps; how it ended, where it did before the last of them."""
        for kind, label in wanted:
            if self.should_stop():
                break
            trace = None if kind is StepKind.BARE else self.folder / f"candidate-{label}.json.gz"
            log = self.folder / f"candidate-{label}.log" if kind is StepKind.JOINED else None
            step = self.worker.script_step(kind, timeout_s=self.script.timeout_s, trace=trace, log=log)
            if isinstance(step, ScriptEnd):
                return step
            _record(self.record, step, trace, log)
        return None


def _one_process(
    process: int, script: Script, worker: ProfilingWorker, profiling: ScriptProfiling, found: ProfiledScript
) -> None:
    if found.is_whole:
        _whole(process, script, worker, profiling, found)
        return
    ended = worker.start_script(script.path, script.arguments, skip=script.skip, timeout_s=script.timeout_s)
    if ended is not None:
        _require_success(script, ended)
        _require_no_steps(script, ended)
        found.is_whole = True
        with ExitStack() as closing:
            _whole(process, script, _start(process, profiling, closing, found), profiling, found)
        return
    record = ProfiledProcess(process=process)
    held = _Held(script, worker, profiling.folder, record, profiling.should_stop)
    try:
        ended = held.steps(_wanted(process, script, is_first=not found.processes))
    finally:
        if record.traced:
            found.processes.append(record)
    if ended is None:
        worker.stop_script(timeout_s=script.timeout_s)
        return
    if record.traced:
        found.notes.append(_early_end(script, record, ended, process))
    _require_success(script, ended)
    if not record.traced:
        raise MeasurementError(
            f"{script.path} ended before one of its steps was profiled; let it make more optimizer steps, or lower "
            "--skip"
        )


def _wanted(process: int, script: Script, *, is_first: bool) -> list[tuple[StepKind, str]]:
    """Steps in their order. Those that are taken once follow the first pair, lest a short script ends before them."""
    pairs = [(kind, f"p{process}-s{n}") for n in range(script.steps) for kind in (StepKind.BARE, StepKind.TRACE)]
    once = [(kind, kind.value) for kind in (StepKind.JOINED, StepKind.WHERE)] if is_first else []
    return [*pairs[:2], *once, *pairs[2:]]


def _early_end(script: Script, record: ProfiledProcess, end: ScriptEnd, process: int) -> str:
    missing = ""
    if process == 0 and record.where is None:
        untold = "source lines are" if record.joined is not None else "library calls and source lines are"
        missing = f"; {untold} not shown"
    seen = f"{len(record.traced)} of its steps {'was' if len(record.traced) == 1 else 'were'} profiled"
    how, remedy = ("failed", "") if _has_failed(end) else ("ended", "; let it make more, or lower --skip or --steps")
    return (
        f"the script {how} after {format_count(end.steps, 'optimizer step')}, so {seen} instead of {script.steps}"
        f"{missing}{remedy}"
    )


def _whole(
    process: int, script: Script, worker: ProfilingWorker, profiling: ScriptProfiling, found: ProfiledScript
) -> None:
    """The whole script as one step; the first run also gives op counts, so its times include the logs' cost."""
    record = ProfiledProcess(process=process)
    is_first = not found.processes
    trace = profiling.folder / f"candidate-p{process}-whole.json.gz"
    log = trace.with_name(f"candidate-p{process}-whole.log") if is_first else None
    kind = StepKind.JOINED if is_first else StepKind.TRACE
    whole = worker.whole_script(script.path, script.arguments, kind, timeout_s=script.timeout_s, trace=trace, log=log)
    _require_success(script, whole.end)
    _record(record, whole.step, trace, log)
    if is_first:  # one process must do
        record.traced.append(StepFiles(step=whole.step, trace=trace))
    found.processes.append(record)


def _record(record: ProfiledProcess, step: ProfiledStep, trace: Path | None, log: Path | None) -> None:
    if trace is None:
        record.bare.append(step)
        return
    files = StepFiles(step=step, trace=trace, log=log)
    if step.kind is StepKind.TRACE:
        record.traced.append(files)
    elif step.kind is StepKind.JOINED:
        record.joined = files
    else:
        record.where = files


def _require_no_steps(script: Script, end: ScriptEnd) -> None:
    if end.steps:
        raise MeasurementError(
            f"{script.path} made {end.steps} optimizer steps and ended before step {script.skip} was over; let it make "
            "more, or lower --skip"
        )


def _has_failed(end: ScriptEnd) -> bool:
    return end.problem is not None or end.exit_code != 0


def _require_success(script: Script, end: ScriptEnd) -> None:
    if _has_failed(end):
        reason = end.problem or f"it ended with exit code {end.exit_code}"
        raise MeasurementError(f"{script.path} failed: {reason}\n{end.detail}".strip())
