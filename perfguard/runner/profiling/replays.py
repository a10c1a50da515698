"""Ops of a step alone, one after the other, in a worker like those that ran the step: same CPUs, same environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from perfguard.records.facts import Fact, fact
from perfguard.records.run import Arm
from perfguard.runner.blocks.measure import plan_block
from perfguard.runner.process.answers import Ceilings, RecordedOp, ReplayedOp
from perfguard.runner.process.arm_worker import CaseRefused, ProfilingWorker
from perfguard.runner.process.launching import launched
from perfguard.runner.process.worker_process import WorkerContext, WorkerFailure

T = TypeVar("T")
OUT_OF_TIME = fact("replay.out_of_time")
PROGRAM = "benchdnn"
_LAST_CHARACTERS = 200
_MAX_LOST_WORKERS = 3  # Made-up values may crash an op and its worker; after so many something else is wrong


class Replaying(WorkerContext, frozen=True, kw_only=True):
    """What replaying needs from outside."""

    arm: Arm  # Whose environment it runs in
    budget_s: float  # Wall seconds for all ops together
    op_budget_s: float = 0.1  # Seconds that one op is timed for
    clock: Callable[[], float] = time.monotonic  # Seconds


class Replays(Struct):
    """What became of the ops."""

    ops: list[ReplayedOp] = field(default_factory=list)  # One for each op that was asked for, in that order
    ceilings: Ceilings | None = None  # What the CPUs can do at best; None where it could not be measured
    notes: list[Fact] = field(default_factory=list)  # What the reader should know


def replay_ops(ops: Sequence[RecordedOp], dtypes: Sequence[str], replaying: Replaying) -> Replays:
    """Measure the ceilings, then time ops alone in the order given, until the budget is used up.

    An op whose worker does not survive it has that as its reason, and the others go on in another worker. The most
    important ops come first; the dtypes are some of `CEILING_DTYPES`, none measures no ceilings.

    Raises:
        MeasurementError: A worker cannot be started.
    """
    found = Replays()
    with _Replayer(replaying) as replayer:
        if dtypes and not replaying.should_stop():
            answer = replayer.ask(lambda worker: worker.ceilings(dtypes))
            if isinstance(answer, Ceilings):
                found.ceilings = answer
            else:
                found.notes.append(fact("projection.no_ceilings", error=answer.reason))
        ends = replaying.clock() + replaying.budget_s
        for op in ops:
            in_time = replaying.clock() < ends and not replaying.should_stop()
            found.ops.append(replayer.replay(op) if in_time else ReplayedOp(call_s=None, reason=OUT_OF_TIME))
    return found


class _Replayer(ExitStack):
    """Holds one worker, and gets another one where it was lost."""

    def __init__(self, replaying: Replaying) -> None:
        super().__init__()
        self._replaying = replaying
        self._worker: ProfilingWorker | None = None
        self._lost = 0

    def replay(self, op: RecordedOp) -> ReplayedOp:
        if self._lost >= _MAX_LOST_WORKERS:
            return ReplayedOp(call_s=None, reason=fact("replay.workers_lost", workers=self._lost))
        answer = self.ask(lambda worker: worker.replay(op, budget_s=self._replaying.op_budget_s))
        if isinstance(answer, ReplayedOp):
            return answer
        error = {"error": answer.reason}
        is_refused = isinstance(answer, CaseRefused)
        return ReplayedOp(
            call_s=None, reason=fact("replay.refused", error) if is_refused else fact("replay.crashed", error)
        )

    def ask(self, question: Callable[[ProfilingWorker], T]) -> T | CaseRefused | WorkerFailure:
        """What the worker answers, or how it failed."""
        self._worker = self._worker or self._started()
        try:
            return question(self._worker)
        except CaseRefused as failure:
            return failure
        except WorkerFailure as failure:
            self._lost += 1
            self._worker = None
            self.close()
            return failure

    def _started(self) -> ProfilingWorker:
        replaying = self._replaying
        block = plan_block(1, index=0, seed=replaying.settings.seed)
        started = replaying.starter.start(replaying.arm, block, None)
        worker = ProfilingWorker(replaying.arm, started, replaying.settings)
        self.callback(worker.close)
        worker.hello_profiler("the worker that replays ops", cpus=replaying.cpus)
        return worker


class BenchdnnFailure(Exception):  # noqa: N818 - it is the program's failure, which becomes a reason in a table
    """benchdnn did not end by itself; the message is one sentence."""


class Benchdnn(Struct, frozen=True, kw_only=True):
    """Where and how benchdnn is run."""

    path: str  # The program, absolute
    environment: Mapping[str, str]  # The whole environment, that of the workers
    cpus: tuple[int, ...]  # Affinity mask
    memory_node: int | None = None  # NUMA node that memory is bound to; None leaves the policy alone
    timeout_s: float = 60.0  # Longest wait for one problem

    def run(self, options: Sequence[str]) -> str:
        """What it prints; a problem that it cannot run is in there, too.

        Raises:
            BenchdnnFailure: It cannot be started, hangs, or crashes.
        """
        try:
            done = subprocess.run(
                launched([self.path, *options], cpus=self.cpus, memory_node=self.memory_node),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchdnnFailure(f"benchdnn gave no answer in {self.timeout_s:.0f} s and was killed") from None
        except OSError as error:
            raise BenchdnnFailure(f"{self.path} cannot be started: {error.strerror or error}") from error
        # It exits with 1 where a problem cannot be run, and says in its output which and why.
        if done.returncode not in {0, 1}:
            last = done.stdout.strip()[-_LAST_CHARACTERS:]
            raise BenchdnnFailure(f"benchdnn ended with exit code {done.returncode}: {last or 'it printed nothing'}")
        return done.stdout


def find_benchdnn(environment: Mapping[str, str]) -> str | None:
    """The program's absolute path; None where it is not on the path of this environment."""
    found = shutil.which(PROGRAM, path=environment.get("PATH", os.defpath))
    return str(Path(found).absolute()) if found is not None else None
