"""The measuring loop: blocks of fresh processes, samples that alternate between the arms.

Emits events and decides nothing: what the events add up to is `perfguard.records.run_data`'s business.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import MeasurementError
from perfguard.records.events import BlockFinished, BlockStarted, CaseFinished, ControlTimed, Event, Noted
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import BlockPlan, CasePlan, MeasureSettings
from perfguard.records.run import Arm, CaseFailed
from perfguard.runner.blocks.foreign_load import foreign_load, read_load
from perfguard.runner.blocks.intrusion import IntrusionWatch, read_steal, steal_ratio
from perfguard.runner.process.answers import Prepared
from perfguard.runner.process.arm_worker import ArmWorker, CaseRefused, CheckedSample
from perfguard.runner.process.worker_process import Worker, WorkerContext, WorkerFailure

_ARMS = (Arm.BASELINE, Arm.CANDIDATE)
_MAX_START_FAILURES = 2
BLOCKS_OF_A_HASH_SEED = 6  # Blocks in a row whose workers are forked from one process of each arm; decision 0013
_CONTROL_TIMEOUT_S = 30.0
_OVERDUE, _OVERDUE_S = 2, 60.0  # A block may go on for so many budgets, and so many seconds


def plan_blocks(cases: int, *, seed: int, first: int = 0) -> Iterator[BlockPlan]:
    """Endless independent block plans for `cases` cases, numbered from `first`.

    The hash seed is common to some blocks in a row, since their workers are forked from one process of each arm.
    Start-up order, set-up order, measuring order and first arm are uniform and independent in every block, so that
    neither position nor neighbour can favour an arm or a case. Within a case the arms then strictly alternate: each
    sample follows a sample of the other arm, which leaves both with the same caches.
    """
    return (plan_block(cases, index=index, seed=seed) for index in itertools.count(first))


def plan_block(cases: int, *, index: int, seed: int) -> BlockPlan:
    """The plan of block `index`; a function of its arguments alone."""
    draw = random.Random(f"{seed}:{index}")  # noqa: S311 - a schedule, not a secret
    of_some = random.Random(f"{seed}:hash:{index // BLOCKS_OF_A_HASH_SEED}")  # noqa: S311
    return BlockPlan(
        index=index,
        hash_seed=of_some.randrange(1, 2**32),
        data_seed=draw.randrange(2**32),
        setup_order=tuple(draw.sample(range(cases), cases)),
        case_order=tuple(draw.sample(range(cases), cases)),
        first_arms=tuple(draw.choice(_ARMS) for _ in range(cases)),
        first_started=draw.choice(_ARMS),
    )


class Look(NamedTuple):
    """Which sample of a case in a block has inputs of its own, in both arms, and is asked for its result."""

    position: int  # Among the samples of each arm, warm-ups first
    seeds: tuple[int, int]  # Of the inputs, and of where a result is looked at


def unforeseeable_look(settings: MeasureSettings) -> Look:
    """One that no measured code can foresee; the plan's seed would tell it."""
    position = settings.warmups + secrets.randbelow(settings.samples)
    return Look(position, (secrets.randbits(32), secrets.randbits(32)))


class _Looked(Struct):
    """What the look at a case said in a block; nothing where there was none."""

    is_stateful: bool  # Whether results move on from call to call
    samples: dict[Arm, CheckedSample] = field(default_factory=dict)

    @property
    def is_varied(self) -> bool | None:
        """Whether both arms had inputs of their own."""
        return all(sample.is_varied for sample in self.samples.values()) if self.samples else None

    @property
    def is_unanswered(self) -> bool:
        """Whether the candidate gives nothing where the baseline gives what it computed."""
        return len(self.samples) > 1 and bool(self.checks_of(Arm.BASELINE)) > bool(self.checks_of(Arm.CANDIDATE))

    def checks_of(self, arm: Arm) -> Mapping[str, float]:
        """What can be compared: where inputs stay, only a call without a state returns the same again."""
        varied = {sample.is_varied for sample in self.samples.values()}
        return self.samples[arm].checks if varied == {True} or (varied == {False} and not self.is_stateful) else {}


class Measuring(WorkerContext, frozen=True, kw_only=True):
    """What the loop needs from outside."""

    emit: Callable[[Event], None]  # Takes every event as it happens
    arms: tuple[Arm, ...]  # One or both; with one, there is nothing to alternate with
    needs_torch: bool = True  # Whether workers import torch at `hello`
    pause_s: float = 0.0  # Seconds to wait between blocks, so that they spread over time
    least_blocks: int = 0  # Blocks that a verdict needs: where only the last one is missing, it exceeds the budget
    answered: Callable[[], frozenset[str]] = frozenset  # Ids of cases that need no more, asked after every block
    look: Callable[[MeasureSettings], Look] = unforeseeable_look  # Asked for each case and block of two arms


def measure_blocks(plans: Iterator[BlockPlan], cases: Sequence[CasePlan], measuring: Measuring) -> int:
    """Measure blocks until the budget, the block limit or the user ends it; gives the number that finished.

    A case that fails is dropped and the others go on; each block starts afresh with those that are left.

    Raises:
        MeasurementError: Workers cannot be started at all.
    """
    loop = _Loop(measuring, cases)
    with _control(measuring) as control:
        return loop.run(plans, control)


@contextmanager
def _control(measuring: Measuring) -> Iterator[Worker | None]:
    """The control workload; a run without one is still a run, so its failure is only noted."""
    with ExitStack() as closing:
        worker: Worker | None = None
        try:
            worker = measuring.starter.start_control()
            closing.callback(worker.close)
            worker.receive(_CONTROL_TIMEOUT_S)
        except (WorkerFailure, MeasurementError) as error:
            measuring.emit(Noted(fact=fact("control.missing", severity=Severity.NOTABLE, error=str(error))))
            closing.close()
            worker = None
        yield worker


class _BlockAborted(Exception):  # noqa: N818 - ends a block, not the run
    """A worker process is gone; the block cannot go on."""


class _Loop:
    def __init__(self, measuring: Measuring, cases: Sequence[CasePlan]) -> None:
        self._m = measuring
        self._cases = dict(enumerate(cases))  # Those that are left, by their place in the plan
        self._started = time.monotonic()
        self._longest_block_s = 0.0
        self._is_shorter = False
        self._start_failures = 0
        self._case_s: defaultdict[int, float] = defaultdict(float)  # Of each case in this block, wall

    def run(self, plans: Iterator[BlockPlan], control: Worker | None) -> int:
        finished = 0
        for plan in plans:
            if finished:
                self._pause()
            if not self._may_start(finished):
                break
            if self._run_block(plan, control):
                finished += 1
                self._leave(self._m.answered())
            if finished >= self._m.settings.max_blocks:
                break
        return finished

    def _leave(self, answered: frozenset[str]) -> None:
        """Measure the given cases no further; what is left makes shorter blocks."""
        left = {index: case for index, case in self._cases.items() if case.case.id not in answered}
        self._is_shorter = self._is_shorter or len(left) < len(self._cases)
        self._cases = left

    def _pause(self) -> None:
        """Wait between blocks, unless the user ends the run meanwhile."""
        until = time.monotonic() + self._m.pause_s
        while not self._m.should_stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def _may_start(self, finished: int) -> bool:
        if self._m.should_stop() or not self._cases:
            return False
        if finished == self._m.least_blocks - 1 > 0:
            return True
        left = self._m.settings.budget_s - (time.monotonic() - self._started)
        return left > 0 and left >= self._longest_block_s

    def _run_block(self, plan: BlockPlan, control: Worker | None) -> bool:
        """One block; True where it finished (perhaps with fewer cases)."""
        order = tuple(self._cases[index].case.id for index in plan.case_order if index in self._cases)
        self._m.emit(BlockStarted(block=plan.index, hash_seed=plan.hash_seed, data_seed=plan.data_seed, case_ids=order))
        started_at, started, before = time.time(), time.monotonic(), read_steal()
        load, loaded = read_load(), started
        workers: dict[Arm, ArmWorker] = {}
        self._case_s.clear()
        switches = 0
        with suppress(_BlockAborted), ExitStack() as closing:
            self._start_workers(plan, workers, closing)
            # Servers that end now take the CPU time of their last workers with them, which would be nobody's.
            load, loaded = read_load(), time.monotonic()
            prepared = self._prepare_all(plan, workers)
            for index in plan.case_order:
                if index in self._cases and not self._m.should_stop():
                    switches += self._measure_case(plan, index, workers, prepared)
                    self._time_control(plan.index, control)
        ended = time.monotonic()
        elapsed = ended - started
        # Once cases have left, the blocks before say too much about the next one.
        self._longest_block_s = elapsed if self._is_shorter else max(self._longest_block_s, elapsed)
        self._is_shorter = False
        foreign = foreign_load(load, read_load(), own=os.getpid(), cpus=self._m.cpus, elapsed_s=ended - loaded)
        self._m.emit(
            BlockFinished(
                block=plan.index,
                started_at=started_at,
                duration_s=elapsed,
                steal_ratio=steal_ratio(before, read_steal(), self._m.cpus, elapsed),
                involuntary_switches=switches,
                foreign_ratio=foreign and foreign.ratio,
                foreign_name=foreign and foreign.name,
            )
        )
        return not self._m.should_stop()

    def _start_workers(self, plan: BlockPlan, workers: dict[Arm, ArmWorker], closing: ExitStack) -> None:
        """Start and greet one arm after the other, so that neither start-up disturbs the other."""
        for arm in sorted(self._m.arms, key=lambda arm: arm is not plan.first_started):
            try:
                worker = ArmWorker(arm, self._m.starter.start(arm, plan, self._m.settings), self._m.settings)
                workers[arm] = worker
                closing.callback(worker.close)
                metadata = {"perfguard_arm": arm.value, "perfguard_block": plan.index}
                worker.hello({"import_torch": self._m.needs_torch, "metadata": metadata}, cpus=self._m.cpus)
            except (WorkerFailure, CaseRefused) as failure:
                self._start_failures += 1
                if self._start_failures >= _MAX_START_FAILURES:
                    raise MeasurementError(
                        f"workers of the {arm.value} cannot be started: {failure.reason}\n{failure.detail}".strip()
                    ) from failure
                error = {"error": failure.reason}
                missing = fact("arms.worker_not_started", error, severity=Severity.NOTABLE, arm=arm.value)
                self._m.emit(Noted(fact=missing))
                raise _BlockAborted from failure
        self._start_failures = 0

    def _prepare_all(self, plan: BlockPlan, workers: dict[Arm, ArmWorker]) -> dict[tuple[int, Arm], Prepared]:
        """Set every case up, in the same order in both arms, one arm at a time."""
        prepared: dict[tuple[int, Arm], Prepared] = {}
        for arm, worker in workers.items():
            for index in plan.setup_order:
                if (case := self._cases.get(index)) is not None:
                    with self._failures_of(index, arm), self._taking(index):
                        prepared[index, arm] = worker.prepare(
                            case.case, seed=plan.data_seed, check=False, instances=case.instances
                        )
        return prepared

    def _measure_case(
        self, plan: BlockPlan, index: int, workers: dict[Arm, ArmWorker], prepared: dict[tuple[int, Arm], Prepared]
    ) -> int:
        """All samples of one case; gives the involuntary switches they saw."""
        case = self._cases[index]
        order = sorted(workers.values(), key=lambda worker: worker.arm is not plan.first_arms[index])
        turns = len(order) * (self._m.settings.warmups + case.samples(self._m.settings))
        watch = IntrusionWatch(order, cpus=len(self._m.cpus), turns=turns)
        opened: list[ArmWorker] = []
        looked = _Looked(is_stateful=case.case.phase.is_stateful)
        with self._taking(index):
            switches = self._time_case(plan.index, index, opened, looked, order=order, watch=watch)
        if index not in self._cases:
            for worker in opened:  # left ready for the next case
                try:
                    worker.skip()
                except WorkerFailure as failure:
                    raise _BlockAborted from failure
            return switches
        if looked.is_unanswered:
            self._cases.pop(index)
            kept = fact("case.look_unanswered")
            self._m.emit(CaseFailed(case_id=case.case.id, arm=Arm.CANDIDATE, reason=kept))
            return switches
        baseline, candidate = (prepared.get((index, arm)) for arm in (Arm.BASELINE, Arm.CANDIDATE))
        self._m.emit(
            CaseFinished(
                block=plan.index,
                case_id=case.case.id,
                baseline_digest=baseline.digest if baseline else None,
                candidate_digest=candidate.digest if candidate else None,
                baseline_checks=_merged(baseline, looked.checks_of(Arm.BASELINE)),
                candidate_checks=_merged(candidate, looked.checks_of(Arm.CANDIDATE)),
                is_varied=looked.is_varied,
                baseline_intrusion_ratio=watch.ratio_of(Arm.BASELINE),
                candidate_intrusion_ratio=watch.ratio_of(Arm.CANDIDATE),
                wall_s=self._case_s[index],
            )
        )
        return switches

    def _time_case(
        self,
        block: int,
        index: int,
        opened: list[ArmWorker],
        looked: _Looked,
        *,
        order: Sequence[ArmWorker],
        watch: IntrusionWatch,
    ) -> int:
        """Open a case and time its samples; where a worker refuses, `opened` keeps those that still wait."""
        case, switches = self._cases[index], 0
        settings = replace(self._m.settings, samples=case.samples(self._m.settings))
        look = self._m.look(settings) if len(order) > 1 else None
        for worker in order:
            with self._failures_of(index, worker.arm):
                spin_s = case.spin_s[0 if worker.arm is Arm.BASELINE else 1]
                worker.open(case.case, inner_loops=case.inner_loops, spin_s=spin_s, samples=settings.samples)
                opened.append(worker)
            if index not in self._cases:
                return switches
        for position in range(settings.warmups + settings.samples):
            for worker in order:
                with self._failures_of(index, worker.arm), watch.turn(worker.arm):
                    if look is not None and position == look.position:
                        looked.samples[worker.arm] = found = worker.checked_sample(
                            block=block, case_id=case.case.id, position=position, seeds=look.seeds
                        )
                        timed = found.timed
                    else:
                        timed = worker.sample(block=block, case_id=case.case.id, position=position)
                    self._m.emit(timed)
                    switches += 0 if timed.warmup else timed.involuntary_switches
                    self._require_time()
                if index not in self._cases:
                    opened.remove(worker)
                    return switches
        return switches

    def _require_time(self) -> None:
        """Fail a case that goes on long after the budget has ended: whoever slows its samples on purpose could."""
        budget_s = self._m.settings.budget_s
        if time.monotonic() - self._started > _OVERDUE * budget_s + _OVERDUE_S:
            overdue = fact("case.overdue", budget_s=budget_s)
            raise WorkerFailure(f"the block goes on {_OVERDUE} times as long as the budget", found=overdue)

    @contextmanager
    def _taking(self, index: int) -> Iterator[None]:
        """Add the wall time of what is done within to the case's."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._case_s[index] += time.monotonic() - started

    @contextmanager
    def _failures_of(self, index: int, arm: Arm) -> Iterator[None]:
        """Turn whatever a worker does wrong in a case into that case's failure; the case is dropped."""
        try:
            yield
        except (CaseRefused, WorkerFailure) as failure:
            case = self._cases.pop(index)
            missing = isinstance(failure, CaseRefused) and failure.missing
            reason, detail = failure.found, failure.detail
            self._m.emit(CaseFailed(case_id=case.case.id, arm=arm, missing=missing, reason=reason, detail=detail))
            if isinstance(failure, WorkerFailure):
                raise _BlockAborted from failure

    def _time_control(self, block: int, control: Worker | None) -> None:
        if control is None:
            return
        try:
            control.send("go")
            reply = control.receive(_CONTROL_TIMEOUT_S)
            self._m.emit(ControlTimed(block=block, value_s=float(reply["value_s"])))
        except (WorkerFailure, KeyError, ValueError):
            self._m.emit(Noted(fact=fact("control.no_answer", severity=Severity.NOTABLE, block=block + 1)))


def _merged(prepared: Prepared | None, timed: Mapping[str, float]) -> dict[str, float]:
    """Named numbers of a case's first call, and of a timed one."""
    return {**(prepared.checks if prepared else {}), **timed}
