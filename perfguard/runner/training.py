"""Heterogeneous training as a run: its process is started, watched and ended; its events are the run's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfguard.codec import from_builtins, to_json
from perfguard.config import LoadedConfig
from perfguard.errors import ExitCode, MeasurementError, StoreError, UsageError
from perfguard.hetero.algorithms import limits_of
from perfguard.hetero.planning import places
from perfguard.host.identity import machine_line
from perfguard.records.events import RunFinished
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run_data import RunData
from perfguard.records.training import (
    Device,
    Ending,
    TrainedOn,
    Training,
    TrainingConfig,
    TrainingEpoch,
    TrainingJob,
    TrainingOutcome,
    TrainingPlanned,
    TrainingUse,
)
from perfguard.runner.process.json_lines import json_lines
from perfguard.runner.process.launching import launched
from perfguard.runner.run_folder import read_events
from perfguard.runner.session import Request, Session, open_session

CHECKPOINT = "checkpoint.pt"
LOG = "logs/training.log"
RESULT = "training.json"
MODE = "training"
_QUIET = {"TORCH_CPP_LOG_LEVEL": "FATAL"}  # The error of a failed connection says all that these stack traces do
_BALANCED = 1.05  # Largest factor between groups' updates that counts as equal
_ENDS_S = 30.0  # Longest end of the process once it was asked to stop


class Resumed(Struct, frozen=True, kw_only=True):
    """An earlier run that a new one goes on from."""

    run_id: str
    checkpoint: Path
    epoch: int  # Its last one
    at_s: float  # Seconds of the run until then


def train(
    request: Request, config: TrainingConfig, resumed: Resumed | None = None, listen: str | None = None
) -> Training:
    """Train on this machine, and give what came of it.

    Raises:
        PerfguardError: Training could not be started, by what could not be used.
    """
    with open_session(_with_cpus(request, config), mode=MODE) as session:
        planned = TrainingPlanned(config=config, workers=places(config, session.selection.cpus))
        session.folder.write_json("fingerprint.json", session.fingerprint)
        session.emit(planned)
        for found in emulated(planned):
            session.note(found)
        try:
            code, reasons = _run(session, planned, resumed, listen)
        except MeasurementError as error:
            if error.exit_code is ExitCode.USAGE and not _has_begun(session):
                raise UsageError(str(error)) from error  # no run, then
            session.emit(RunFinished(outcome="failed", exit_code=int(error.exit_code), reasons=(_failure(str(error)),)))
            raise
        outcome = session.data.training.outcome if session.data.training else None
        known = session.data.training
        if known is not None and known.epochs and (stuck := at_limits(config, known.epochs[-1])) is not None:
            session.note(stuck)
        name = outcome.ending.value if outcome else "failed"
        session.emit(RunFinished(outcome=name, exit_code=code, reasons=reasons))
        result = training_of(session.data, machine=machine_line(session.fingerprint))
        session.folder.write_json(RESULT, result)
        return result


def training_of(data: RunData, *, machine: str) -> Training:
    """What a run's events add up to.

    Raises:
        StoreError: They are of another kind of run.
    """
    known, start, end = data.training, data.start, data.end
    if known is None or start is None:
        raise StoreError("the run is no training")
    return Training(
        run_id=start.run_id,
        machine_id=start.machine_id or "unknown",
        machine=machine,
        planned=known.planned,
        trained=known.trained,
        epochs=tuple(known.epochs),
        outcome=known.outcome,
        notes=tuple(note.fact for note in data.notes),
        reasons=end.reasons if end else (fact("training.unfinished", severity=Severity.NOTABLE),),
        exit_code=end.exit_code if end else int(ExitCode.INFRASTRUCTURE),
    )


def recorded_training(folder: Path, *, machine: str) -> Training | None:
    """What a recorded run came to, from its events; None where it is no training.

    Raises:
        StoreError: The events cannot be read.
    """
    data = RunData.of(read_events(folder / "events.jsonl"))
    return training_of(data, machine=machine) if data.training is not None else None


def _with_cpus(request: Request, config: TrainingConfig) -> Request:
    """The request for as many CPUs as the workers can use; an explicit choice stands."""
    asked = request.loaded.config
    if asked.cpus is not None or asked.threads is not None:
        return request
    allowed = os.sched_getaffinity(0)
    wanted = [group.workers * group.threads for group in config.groups.values() if group.workers]
    count = len(allowed) if len(wanted) < len(config.groups) else min(len(allowed), sum(wanted))
    return replace(request, loaded=replace(request.loaded, config=replace(asked, threads=count)))


def work_remotely(loaded: LoadedConfig, address: str, *, threads: int, timeout_s: float) -> str:
    """Be a worker of a coordinator on another host until its run ends; gives the worker's name.

    Raises:
        MeasurementError: It cannot be joined, or training failed here.
    """
    folder = loaded.project / ".perfguard" / "data"
    command = [sys.executable, "-m", "perfguard.hetero.child.work", address, str(folder), str(threads), str(timeout_s)]
    environment = {**os.environ, **_QUIET}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise MeasurementError(f"the worker ended with exit code {done.returncode}; what it said is above")
    found = json.loads(lines[-1])
    if "error" in found:
        raise _ChildError(found["error"], ExitCode(found["exit_code"]))
    return str(found["name"])


def _run(
    session: Session, planned: TrainingPlanned, resumed: Resumed | None, listen: str | None
) -> tuple[int, tuple[Fact, ...]]:
    folder = session.folder.path
    if resumed is not None:
        (folder / CHECKPOINT).write_bytes(resumed.checkpoint.read_bytes())
        session.note(fact("training.resumed", run_id=resumed.run_id))
    job = TrainingJob(
        config=planned.config,
        workers=planned.workers,
        data_folder=str(folder.parent.parent / "data"),
        checkpoint=str(folder / CHECKPOINT),
        resumes=resumed is not None,
        listen=listen,
    )
    with _started(session, folder / LOG) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        process.stdin.write(to_json(job).encode())
        process.stdin.close()
        error, is_stopping = None, False
        for line in json_lines(process.stdout):
            if session.interrupts.asked and not is_stopping:
                process.send_signal(signal.SIGTERM)
                is_stopping = True
            if line is not None:
                error = _take(session, line) or error
    outcome = session.data.training.outcome if session.data.training else None
    if error is not None:
        raise _ChildError(error["message"], ExitCode(error["exit_code"]))
    if outcome is None:
        goes_on = f"; go on from its last epoch: perfguard hetero train --resume {folder.name}"
        raise MeasurementError(
            f"the process that trains {_how_it_ended(process.returncode)}: {_last_line(folder)}; its output is in "
            f"{folder / LOG}{goes_on if (folder / CHECKPOINT).is_file() else ''}"
        )
    return conclusion(planned.config, session.data.training.epochs if session.data.training else [], outcome)


def _has_begun(session: Session) -> bool:
    return session.data.training is not None and session.data.training.trained is not None


def emulated(planned: TrainingPlanned) -> Iterator[Fact]:
    """That a group's device is not a real one, of each group that takes part."""
    for name in dict.fromkeys(place.group for place in planned.workers):
        group = planned.config.groups[name]
        if group.device is Device.EMULATED:
            yield fact("training.emulated", severity=Severity.NOTABLE, group=name, speed=group.speed)


def at_limits(config: TrainingConfig, epoch: TrainingEpoch) -> Fact | None:
    """That a policy could not balance the updates, as every batch that it may change has come to its least or most."""
    batches, updates = epoch.batches, epoch.updates.values()
    if max(updates, default=0) <= _BALANCED * min(updates, default=0):
        return None
    limits = {name: limits_of(config.groups[name]) for name in batches}
    free = {name: limit for name, limit in limits.items() if limit.minimum < limit.maximum}
    if len(batches) < 2 or not free:
        return None
    if not all(batches[name] in (limit.minimum, limit.maximum) for name, limit in free.items()):
        return None
    at = tuple(f"{name} {batches[name]:,}" for name in free)
    return fact("training.batches_at_limits", severity=Severity.NOTABLE, batches=at)


class _ChildError(MeasurementError):
    """What the process that trains could not use, with its own exit code."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def conclusion(
    config: TrainingConfig, epochs: list[TrainingEpoch], outcome: TrainingOutcome
) -> tuple[int, tuple[Fact, ...]]:
    """Exit code of a run, and why."""
    loss, epoch = (epochs[-1].loss, epochs[-1].epoch) if epochs else (None, 0)
    updates = sum(count.updates for count in outcome.counters.values())
    best = min((epoch.loss for epoch in epochs), default=None)
    match outcome.ending:
        case Ending.TARGET:
            return ExitCode.PASS, (fact("training.target_reached", loss=loss, trained_s=epochs[-1].trained_s),)
        case Ending.DIVERGED:
            return ExitCode.REGRESSION, (
                fact("training.diverged", severity=Severity.GRAVE, updates=updates, epoch=epoch + 1),
            )
        case Ending.NO_WORKERS:
            return ExitCode.INFRASTRUCTURE, (fact("training.no_workers", severity=Severity.GRAVE, updates=updates),)
        case Ending.ASKED:
            return ExitCode.INTERRUPTED, (fact("training.interrupted", severity=Severity.NOTABLE, loss=loss),)
        case _ if config.target_loss is not None:
            found = fact("training.target_missed", severity=Severity.GRAVE, target=config.target_loss, best=best)
            return ExitCode.REGRESSION, (found,)
        case _:
            return ExitCode.PASS, (fact("training.ended", loss=loss, epochs=epoch),)


@contextmanager
def _started(session: Session, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that trains, in a session of its own: Ctrl-C reaches it as a wish to end."""
    command = launched([sys.executable, "-m", "perfguard.hetero.child.main"], cpus=session.selection.cpus)
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(session),
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
            process.wait(_ENDS_S)
        finally:
            process.kill()  # does nothing to one that has ended


def _environment(session: Session) -> dict[str, str]:
    """Threads are the workers' own choice; BLAS must not take all CPUs in each of them."""
    return {**session.request.inherited, **_QUIET, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _take(session: Session, line: dict[str, Any]) -> dict[str, Any] | None:
    """Make an event of a line; gives an error."""
    kind, value = line["kind"], line["value"]
    match kind:
        case "started":
            session.emit(from_builtins(value, TrainedOn, source=kind))
        case "epoch":
            session.emit(from_builtins(value, TrainingEpoch, source=kind))
        case "used":
            session.emit(from_builtins(value, TrainingUse, source=kind))
        case "outcome":
            session.emit(from_builtins(value, TrainingOutcome, source=kind))
        case "lost":
            session.note(
                fact("training.worker_lost", severity=Severity.NOTABLE, worker=value["worker"], reason=value["reason"])
            )
        case "returned" if value["is_late"]:
            count = value["range"]["stop"] - value["range"]["start"]
            session.note(
                fact("training.worker_late", severity=Severity.NOTABLE, worker=value["worker"], examples=count)
            )
        case "error":
            return dict(value)
    return None


def _failure(message: str) -> Fact:
    return fact("training.failed", severity=Severity.GRAVE, error=message)


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _last_line(folder: Path) -> str:
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
