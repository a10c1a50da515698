"""Profiled steps of one or two arms: fresh processes in pairs, steps that alternate, never beside a timed sample."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field

from perfguard.errors import MeasurementError
from perfguard.records.changed_lines import ChangedLines
from perfguard.records.facts import Fact, fact
from perfguard.records.protocol import Message, StepKind
from perfguard.records.run import Arm
from perfguard.records.spec import Case
from perfguard.runner.blocks.measure import plan_block
from perfguard.runner.process.answers import ProfiledStep
from perfguard.runner.process.arm_worker import ArmWorker, CaseRefused
from perfguard.runner.process.worker_process import WorkerContext, WorkerFailure

_SLUG_CHARACTERS = 60

_MOST_BARE = 3
_BARE_S = 0.06
"""Steps without a profiler are cheap where a step is short, and the difference of the steps rests on them: so many
before each profiled one, while they take no longer than this in each arm."""

_STEPS_S = 3.0
"""Seconds of each case in each process within which more steps than the fewest are taken, traces included: of the order
of what starting the process takes."""


class StepFiles(Struct, frozen=True, kw_only=True):
    """A profiled step and the files that it left."""

    step: ProfiledStep  # What the worker says of it
    trace: Path  # Chrome trace, gzip
    log: Path | None = None  # What oneDNN and MKL printed; None for all but `joined` steps


class ProfiledProcess(Struct):
    """One process of one arm and one case, with its steps in order."""

    process: int  # Number of the process; equal numbers of two arms ran side by side
    bare: list[ProfiledStep] = field(default_factory=list)  # Steps without a profiler
    traced: list[StepFiles] = field(default_factory=list)  # Steps with a profiler, each after one or more bare ones
    joined: StepFiles | None = None  # The step with the libraries' logs and the allocations
    where: StepFiles | None = None  # The step with marks of lines
    program: Message | None = None  # What the process said of its program after its steps, where it was asked


class Profiling(WorkerContext, frozen=True, kw_only=True):
    """What profiling needs from outside."""

    folder: Path  # Takes traces and logs, one folder for each case
    arms: tuple[Arm, ...]  # One or both
    processes: int  # Fresh processes of each arm; two or more are needed for an interval
    steps: (
        int  # Traced steps of each case in each process, at least; with as many bare ones, more where a step is short
    )
    most_steps: int  # Traced steps of each case in each process where they are short
    where: bool  # Whether the step with marks of lines is taken
    progress: Callable[[Fact], None]  # Gets one line for each case and process
    changed: Mapping[Arm, ChangedLines] = field(default_factory=dict)  # What the change touches of each arm's tree
    most_processes: int = 0  # Processes of each arm, if larger, where the first ones do not settle a case
    is_settled: Callable[[Sequence[ProfiledProcess], Sequence[ProfiledProcess]], bool] = lambda *_: True
    """Whether the processes of the baseline and those of the candidate say enough of a case."""


class Profiled(Struct):
    """Everything that profiling left."""

    # By case id and arm: processes in the order in which they ran, of which all arms completed.
    processes: dict[tuple[str, Arm], list[ProfiledProcess]] = field(default_factory=dict)
    problems: dict[str, CaseRefused | WorkerFailure] = field(default_factory=dict)  # Why not, by case id
    ready: dict[Arm, Message] = field(default_factory=dict)  # What the first worker of each arm said of itself
    compile_events: dict[tuple[str, Arm], dict[str, int]] = field(default_factory=dict)
    """What torch.compile did while a case was set up, by case id and arm."""


def profile_cases(cases: Sequence[Case], profiling: Profiling) -> Profiled:
    """Profile cases in fresh processes; a case that fails is left out from then on and the others go on.

    Once, after `processes`, it is asked which cases these settle; the others go on to `most_processes`. The first
    process of each case also takes the step with the libraries' logs and the one with marks of lines.

    Raises:
        MeasurementError: Workers cannot be started, or what they write cannot be stored.
    """
    found = Profiled()
    for numbers in (range(profiling.processes), range(profiling.processes, profiling.most_processes)):
        cases = [case for case in cases if numbers.start == 0 or not _is_settled(case, profiling, found)]
        for process in numbers:
            left = [case for case in cases if case.id not in found.problems]
            if profiling.should_stop() or not left:
                break
            _one_process(process, numbers.stop, left, profiling, found)
    return found


def _is_settled(case: Case, profiling: Profiling, found: Profiled) -> bool:
    baseline, candidate = (found.processes.get((case.id, arm), ()) for arm in (Arm.BASELINE, Arm.CANDIDATE))
    return not (baseline and candidate) or profiling.is_settled(baseline, candidate)


def case_folder(root: Path, case_id: str) -> Path:
    """The folder of a case: its id in characters that every file system takes, made unique by a checksum."""
    slug = re.sub(r"[^A-Za-z0-9.=-]+", "_", case_id)[:_SLUG_CHARACTERS].strip("_.")
    return root / f"{slug}-{zlib.crc32(case_id.encode()):08x}"


def _one_process(process: int, of: int, cases: Sequence[Case], profiling: Profiling, found: Profiled) -> None:
    # Drawn as a block is: hash and data seeds are common to the arms and differ between processes.
    block = plan_block(len(cases), index=process, seed=profiling.settings.seed)
    with ExitStack() as closing:
        workers: dict[Arm, ArmWorker] = {}
        for arm in sorted(profiling.arms, key=lambda arm: arm is not block.first_started):
            worker = ArmWorker(arm, profiling.starter.start(arm, block, None), profiling.settings)
            closing.callback(worker.close)
            name, is_first = f"the {arm.value} worker", arm not in found.ready
            changed = profiling.changed.get(arm)
            ready = worker.hello_profiler(name, cpus=profiling.cpus, collect_software=is_first, changed=changed)
            found.ready.setdefault(arm, ready)
            workers[arm] = worker
        for index in block.case_order:
            case = cases[index]
            if profiling.should_stop():
                return
            profiling.progress(fact("step.profiling", name=case.id, process=process + 1, processes=of))
            first = block.first_arms[index]
            turns = sorted(workers.values(), key=lambda worker: worker.arm is not first)
            if not _one_case(case, turns, profiling, found, process=process, data_seed=block.data_seed):
                return


def _one_case(
    case: Case, workers: Sequence[ArmWorker], profiling: Profiling, found: Profiled, *, process: int, data_seed: int
) -> bool:
    """Profile one case in each worker; False where one is gone, so that the process has to end."""
    records = {worker.arm: ProfiledProcess(process=process) for worker in workers}
    busy = workers[0]
    is_first = (case.id, busy.arm) not in found.processes
    try:
        for busy in workers:
            prepared = busy.prepare(case, seed=data_seed, check=False)
            found.compile_events.setdefault((case.id, busy.arm), prepared.compile_events)
        for number in _numbers(profiling):
            # Who goes first changes from step to step: the second finds the caches that the first has left.
            turns = workers if number % 2 == 0 else workers[::-1]
            for busy in _bare_turns(turns, records):
                records[busy.arm].bare.append(busy.profile(case, StepKind.BARE))
            for busy in turns:
                record = records[busy.arm]
                record.traced.append(_profile(busy, case, StepKind.TRACE, f"p{process}-s{number}", profiling))
        for busy in workers if is_first else ():
            records[busy.arm].joined = _profile(busy, case, StepKind.JOINED, "joined", profiling)
            if profiling.where:
                records[busy.arm].where = _profile(busy, case, StepKind.WHERE, "where", profiling)
                records[busy.arm].program = busy.program(case)
    except (CaseRefused, WorkerFailure) as failure:
        found.problems[case.id] = failure
        return isinstance(failure, CaseRefused)
    for arm, record in records.items():
        found.processes.setdefault((case.id, arm), []).append(record)
    return True


def _numbers(profiling: Profiling) -> Iterator[int]:
    """Numbers of the traced steps: the fewest, then more while there is time for another."""
    began = before = time.monotonic()
    for number in range(max(profiling.steps, profiling.most_steps)):
        now = time.monotonic()
        if number >= profiling.steps and now - began + (now - before) > _STEPS_S:
            return
        before = now
        yield number


def _bare_turns(turns: Sequence[ArmWorker], records: Mapping[Arm, ProfiledProcess]) -> Iterator[ArmWorker]:
    """Who runs a step without a profiler next, while what each arm has run so far says that there is time for more."""
    for repeat in range(_MOST_BARE):
        step_s = max(min((step.wall_s for step in record.bare), default=0.0) for record in records.values())
        if repeat * step_s > _BARE_S:
            return
        yield from turns if repeat % 2 == 0 else turns[::-1]


def _profile(worker: ArmWorker, case: Case, kind: StepKind, label: str, profiling: Profiling) -> StepFiles:
    folder = case_folder(profiling.folder, case.id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeasurementError(f"{folder} cannot be written: {error.strerror}") from error
    trace = folder / f"{worker.arm.value}-{label}.json.gz"
    log = folder / f"{worker.arm.value}-{label}.log" if kind is StepKind.JOINED else None
    return StepFiles(step=worker.profile(case, kind, trace=trace, log=log), trace=trace, log=log)
