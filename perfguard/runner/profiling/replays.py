"""Ops of a step alone, one after the other, in a worker like those that ran the step: same CPUs, same environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perfguard.errors import MeasurementError
from perfguard.records.facts import Fact, fact
from perfguard.records.run import Arm
from perfguard.runner.blocks.schedule import plan_block
from perfguard.runner.process.arm_worker import CaseRefused
from perfguard.runner.process.profiling_worker import Ceilings, ProfilingWorker, RecordedOp, ReplayedOp
from perfguard.runner.process.starter import WorkerContext
from perfguard.runner.process.worker_process import WorkerFailure

OUT_OF_TIME = fact("replay.out_of_time")
_MAX_LOST_WORKERS = 3
"""Made-up values may crash an op, and its worker with it; when this many did, something else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying(WorkerContext):
    """What replaying needs from outside."""

    arm: Arm
    """Whose environment it runs in."""
    budget_s: float
    """Wall seconds for all ops together."""
    op_budget_s: float = 0.1
    """Seconds that one op is timed for."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""


@dataclass(slots=True)
class Replays:
    """What became of the ops."""

    ops: list[ReplayedOp] = field(default_factory=list)
    """One for each op that was asked for, in that order."""
    ceilings: Ceilings | None = None
    """What the CPUs can do at best; None where it could not be measured."""
    notes: list[Fact] = field(default_factory=list)
    """What the reader should know."""


def replay_ops(ops: Sequence[RecordedOp], dtypes: Sequence[str], replaying: Replaying) -> Replays:
    """Measure the ceilings, then time ops alone in the order given, until the budget is used up.

    An op whose worker does not survive it has that as its reason, and the others go on in another worker.

    Args:
        ops: The most important ones first.
        dtypes: Some of `CEILING_DTYPES`; none measures no ceilings.
        replaying: What is needed from outside.

    Raises:
        MeasurementError: A worker cannot be started.
    """
    found = Replays()
    room = _Room(replaying)
    try:
        if dtypes and not replaying.should_stop():
            found.ceilings = _ceilings(room, dtypes, found.notes)
        ends = replaying.clock() + replaying.budget_s
        for op in ops:
            in_time = replaying.clock() < ends and not replaying.should_stop()
            found.ops.append(_replayed(room, op) if in_time else ReplayedOp(call_s=None, reason=OUT_OF_TIME))
    finally:
        room.close()
    return found


class _Room:
    """Holds one worker, and gets another one where it was lost."""

    def __init__(self, replaying: Replaying) -> None:
        self._replaying = replaying
        self._worker: ProfilingWorker | None = None
        self.lost = 0

    def worker(self) -> ProfilingWorker:
        if self._worker is None:
            self._worker = self._started()
        return self._worker

    def lose(self) -> None:
        self.lost += 1
        self.close()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _started(self) -> ProfilingWorker:
        replaying = self._replaying
        block = plan_block(1, index=0, seed=replaying.settings.seed)
        process = replaying.starter.start(replaying.arm, block, None)
        worker = ProfilingWorker(replaying.arm, process, replaying.settings)
        try:
            worker.hello_profiler("the worker that replays ops", cpus=replaying.cpus)
        except MeasurementError:
            worker.close()
            raise
        return worker

    def replay(self, op: RecordedOp) -> ReplayedOp:
        return self.worker().replay(op, budget_s=self._replaying.op_budget_s)


def _replayed(room: _Room, op: RecordedOp) -> ReplayedOp:
    if room.lost >= _MAX_LOST_WORKERS:
        return ReplayedOp(call_s=None, reason=fact("replay.workers_lost", workers=room.lost))
    try:
        return room.replay(op)
    except CaseRefused as failure:
        return ReplayedOp(call_s=None, reason=fact("replay.refused", error=failure.reason))
    except WorkerFailure as failure:
        room.lose()
        return ReplayedOp(call_s=None, reason=fact("replay.crashed", error=failure.reason))


def _ceilings(room: _Room, dtypes: Sequence[str], notes: list[Fact]) -> Ceilings | None:
    try:
        return room.worker().ceilings(dtypes)
    except CaseRefused as failure:
        notes.append(fact("projection.no_ceilings", error=failure.reason))
    except WorkerFailure as failure:
        room.lose()
        notes.append(fact("projection.no_ceilings", error=failure.reason))
    return None
