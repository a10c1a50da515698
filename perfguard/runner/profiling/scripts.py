"""Profiled steps of a user's own training script, held at its step boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field

from perfguard.errors import MeasurementError, UsageError
from perfguard.records.facts import Fact, fact
from perfguard.records.protocol import Message, StepKind
from perfguard.records.run import Arm
from perfguard.records.script_settings import SettingUse
from perfguard.runner.blocks.measure import plan_block
from perfguard.runner.process.answers import ProfiledStep, ScriptEnd
from perfguard.runner.process.arm_worker import CaseRefused, ProfilingWorker
from perfguard.runner.process.worker_process import WorkerContext, WorkerFailure
from perfguard.runner.profiling.cases import ProfiledProcess, StepFiles
from perfguard.units import format_count

_UNKNOWN_ARGUMENTS = 2  # Exit code of argparse


class Script(Struct, frozen=True, kw_only=True):
    """What to run, and how much of it is profiled."""

    path: Path  # The script, absolute
    arguments: tuple[str, ...]  # Its arguments
    skip: int  # Optimizer steps before the first one that is looked at
    steps: int  # Bare and traced steps in each process
    timeout_s: float  # How long its start, or any step of it, may take


class ScriptProfiling(WorkerContext, frozen=True, kw_only=True):
    """What profiling a script needs from outside."""

    folder: Path  # Takes traces and logs, absolute
    processes: int  # Fresh processes, each of which runs the script from its beginning
    progress: Callable[[Fact], None]  # Gets one line for each process


class ProfiledScript(Struct):
    """What profiling a script left."""

    processes: list[ProfiledProcess]  # In the order in which they ran
    ready: Message  # What the first worker said of itself, its software with it
    is_whole: bool = False  # Whether the script makes no optimizer step, so that it was profiled as a whole
    notes: list[str] = field(default_factory=list)  # How the script ended before all steps were profiled
    settings: tuple[SettingUse, ...] = ()  # What became of the arm's settings
    failure: str | None = None  # Why it failed after steps had been profiled; no further process is started then


def profile_script(script: Script, profiling: ScriptProfiling) -> ProfiledScript:
    """Run a script in fresh processes and look at some of its steps; it is ended after the last of them.

    What was profiled before a script failed is kept.

    Raises:
        MeasurementError: It cannot be started, or it fails or ends before a step could be looked at.
        UsageError: It ignores a setting of the arm.
    """
    found = ProfiledScript(processes=[], ready={})
    runs = _Runs(script, profiling, found)
    profiling.folder.mkdir(parents=True, exist_ok=True)
    for process in range(profiling.processes):
        if profiling.should_stop() or found.failure is not None:
            break
        profiling.progress(
            fact("step.profiling", name=script.path.name, process=process + 1, processes=profiling.processes)
        )
        try:
            runs.run(process)
        except (CaseRefused, WorkerFailure) as failure:
            found.failure = f"{script.path} cannot be profiled: {failure.reason}\n{failure.detail}".strip()
            if not found.processes:
                raise MeasurementError(found.failure) from failure
        except MeasurementError as failure:
            found.failure = str(failure)
            if not found.processes:
                raise
    return found


class _Runs(Struct, frozen=True):
    script: Script
    profiling: ScriptProfiling
    found: ProfiledScript

    def run(self, process: int) -> None:
        """Run the script once, in a worker of its own."""
        script, found = self.script, self.found
        with ExitStack() as closing:
            worker = self._start(process, closing)
            if not found.is_whole:
                ended = worker.start_script(script.path, script.arguments, skip=script.skip, timeout_s=script.timeout_s)
                if isinstance(ended, ScriptEnd):
                    self._require_success(ended)
                found.settings = ended.settings
                require_used(script.path, ended.settings)
                if not isinstance(ended, ScriptEnd):
                    self._steps(process, worker)
                    return
                if ended.steps:
                    raise MeasurementError(
                        f"{script.path} made {ended.steps} optimizer steps and ended before step {script.skip} was "
                        "over; let it make more, or lower --skip"
                    )
                found.is_whole = True
                worker = self._start(process, closing)
            self._whole(process, worker)

    def _start(self, process: int, closing: ExitStack) -> ProfilingWorker:
        profiling, found = self.profiling, self.found
        block = plan_block(1, index=process, seed=profiling.settings.seed)
        started = profiling.starter.start(Arm.CANDIDATE, block, None)
        worker = ProfilingWorker(Arm.CANDIDATE, started, profiling.settings)
        closing.callback(worker.close)
        ready = worker.hello_profiler("the worker", cpus=profiling.cpus, collect_software=not found.ready)
        found.ready = found.ready or ready
        return worker

    def _steps(self, process: int, worker: ProfilingWorker) -> None:
        """Look at the next steps of a script that is held at a step boundary, and end it."""
        script, folder, record = self.script, self.profiling.folder, ProfiledProcess(process=process)
        ended = None
        try:
            for kind, label in self._wanted(process):
                if self.profiling.should_stop():
                    break
                trace = None if kind is StepKind.BARE else folder / f"candidate-{label}.json.gz"
                log = folder / f"candidate-{label}.log" if kind is StepKind.JOINED else None
                step = worker.script_step(kind, timeout_s=script.timeout_s, trace=trace, log=log)
                if isinstance(step, ScriptEnd):
                    ended = step
                    break
                _record(record, step, trace, log)
        finally:
            if record.traced:
                self.found.processes.append(record)
        if ended is None:
            worker.stop_script(timeout_s=script.timeout_s)
            return
        if record.traced:
            self.found.notes.append(_early_end(script, record, ended, process))
        self._require_success(ended)
        if not record.traced:
            raise MeasurementError(
                f"{script.path} ended before one of its steps was profiled; let it make more optimizer steps, or "
                "lower --skip"
            )

    def _wanted(self, process: int) -> list[tuple[StepKind, str]]:
        """Steps in their order. Those that are taken once follow the first pair, as a short script may end early."""
        kinds = (StepKind.BARE, StepKind.TRACE)
        pairs = [(kind, f"p{process}-s{n}") for n in range(self.script.steps) for kind in kinds]
        once = [(kind, kind.value) for kind in (StepKind.JOINED, StepKind.WHERE) if not self.found.processes]
        return [*pairs[:2], *once, *pairs[2:]]

    def _whole(self, process: int, worker: ProfilingWorker) -> None:
        """The whole script as one step; the first run also gives op counts, so its times include the logs' cost."""
        script, record, is_first = self.script, ProfiledProcess(process=process), not self.found.processes
        trace = self.profiling.folder / f"candidate-p{process}-whole.json.gz"
        log = trace.with_name(f"candidate-p{process}-whole.log") if is_first else None
        kind = StepKind.JOINED if is_first else StepKind.TRACE
        whole = worker.whole_script(
            script.path, script.arguments, kind, timeout_s=script.timeout_s, trace=trace, log=log
        )
        self._require_success(whole.end)
        _record(record, whole.step, trace, log)
        if is_first:  # one process must do
            record.traced.append(StepFiles(step=whole.step, trace=trace))
        self.found.processes.append(record)

    def _require_success(self, end: ScriptEnd) -> None:
        failed = script_failure(self.script.path, end)
        if failed is not None:
            raise failed


def script_failure(script: Path, end: ScriptEnd) -> MeasurementError | None:
    """The error for a script that ended by failing; None for any other end."""
    if not _has_failed(end):
        return None
    reason = end.problem or f"it ended with exit code {end.exit_code}"
    if end.problem is None and end.exit_code == _UNKNOWN_ARGUMENTS:
        reason += ", as argparse does for arguments that it does not know: options of perfguard stand before the script"
    return MeasurementError(f"{script} failed: {reason}\n{end.detail}".strip())


def require_used(script: Path, settings: Sequence[SettingUse]) -> None:
    """Raise UsageError where a script runs as it would without one of the settings."""
    for use in settings:
        if use.is_ignored:
            raise UsageError(f"{script} ignores {use.name}={use.value}: {_why_ignored(use)}; leave this setting out")


def _why_ignored(use: SettingUse) -> str:
    if use.name == "optimizer":
        if use.kept:
            return "it chooses the implementation of its optimizers itself (`foreach` or `fused`)"
        return f"no optimizer of torch.optim that it makes has the implementation {use.value}"
    if use.name == "dtype":
        if use.kept:
            return "it runs autocast itself"
        return "no module with parameters was called outside of compiled code"
    if use.kept:
        return "its weights have this layout already"
    return "no module with 4-D weights, such as a convolution, was called outside of compiled code"


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


def _record(record: ProfiledProcess, step: ProfiledStep, trace: Path | None, log: Path | None) -> None:
    if trace is None:
        record.bare.append(step)
    elif step.kind is StepKind.TRACE:
        record.traced.append(StepFiles(step=step, trace=trace, log=log))
    else:  # `joined` or `where`
        setattr(record, step.kind.value, StepFiles(step=step, trace=trace, log=log))


def _has_failed(end: ScriptEnd) -> bool:
    return end.problem is not None or end.exit_code != 0
