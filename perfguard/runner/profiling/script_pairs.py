"""Steps of a user's script in two arms that take turns: pairs of fresh processes, steps timed without a profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import MeasurementError, UsageError
from perfguard.records.facts import Fact, fact
from perfguard.records.plan import BlockPlan
from perfguard.records.protocol import StepKind
from perfguard.records.run import Arm
from perfguard.records.script_settings import SettingUse
from perfguard.runner.blocks.measure import plan_blocks
from perfguard.runner.process.answers import HeldScript, ScriptEnd
from perfguard.runner.process.arm_worker import CaseRefused, ProfilingWorker
from perfguard.runner.process.worker_process import WorkerContext, WorkerFailure
from perfguard.runner.profiling.scripts import Script, require_used, script_failure

_BOTH = (Arm.BASELINE, Arm.CANDIDATE)
_Found = TypeVar("_Found")


class ScriptFailedError(MeasurementError):
    """The script fails in one arm."""

    def __init__(self, arm: Arm, error: str) -> None:
        super().__init__(error)
        self.arm = arm


class SettingIgnoredError(UsageError):
    """The script runs in the candidate as it would without one of its settings."""


class TooFewStepsError(MeasurementError):
    """The script makes too few optimizer steps to be timed, or none."""


class ScriptPair(Struct, frozen=True, kw_only=True):
    """One process of each arm, whose steps took turns under the same seeds."""

    data_seed: int  # Seed of both
    baseline_s: tuple[float, ...]  # Wall seconds of each step, in order
    candidate_s: tuple[float, ...]  # The same in the candidate; as many
    checks: dict[Arm, dict[str, float]]  # What the first steps of each arm computed
    dtypes: frozenset[str] = frozenset()  # `bf16` and `fp16`, where the first steps of an arm used them
    settings: dict[Arm, tuple[SettingUse, ...]]  # What became of the settings of each arm
    wall_s: float  # Seconds that the pair took, starts included


class Pairing(WorkerContext, frozen=True, kw_only=True):
    """What pairing needs from outside."""

    progress: Callable[[Fact], None]  # Gets one line for each pair
    clock: Callable[[], float] = time.monotonic  # Seconds


def pairs_of_script(script: Script, pairing: Pairing) -> Iterator[ScriptPair]:
    """Run a script in fresh pairs of processes, one pair each time that the next is asked for; ends when interrupted.

    In each pair the arms alternate step by step; which goes first is drawn. There are `script.steps` steps or more:
    steps are taken for as long as it took to start the pair, since only further pairs show how processes differ.

    Raises:
        ScriptFailedError: The script fails.
        TooFewStepsError: The script makes too few steps.
        MeasurementError: A worker cannot be started.
        SettingIgnoredError: The script ignores a setting of the candidate.
        UsageError: It ignores one of the baseline.
    """
    for block in plan_blocks(1, seed=pairing.settings.seed):
        if pairing.should_stop():
            return
        pairing.progress(fact("step.script_pair", name=script.path.name, pair=block.index + 1))
        pair = _Pair(script, pairing, block).run()
        if pair is not None:
            yield pair


def first_steps(script: Script, pairing: Pairing, arm: Arm, *, data_seed: int) -> dict[str, float]:
    """What the first steps of one arm compute in a fresh process.

    Raises:
        MeasurementError: As for pairs.
    """
    block = replace(next(plan_blocks(1, seed=pairing.settings.seed)), data_seed=data_seed)
    with ExitStack() as closing:
        one = _Pair(script, pairing, block)
        worker = one.start(arm, closing)
        checks = one.held(worker).checks
        worker.stop_script(timeout_s=script.timeout_s)
        return checks


class _Pair(Struct):
    script: Script
    pairing: Pairing
    block: BlockPlan
    times: list[dict[Arm, float]] = field(default_factory=list)  # Seconds of steps that ran one after the other
    ended: list[Arm] = field(default_factory=list)  # Whose script has come to its end

    def run(self) -> ScriptPair | None:
        """Measure the pair; None where it was interrupted before its fewest steps."""
        clock, began = self.pairing.clock, self.pairing.clock()
        with ExitStack() as closing:
            order = sorted(_BOTH, key=lambda arm: arm is not self.block.first_started)
            workers = {arm: self.start(arm, closing) for arm in order}
            held = _of_each((workers[arm] for arm in order), self.held)
            require_used(self.script.path, held[Arm.BASELINE].settings)
            try:
                require_used(self.script.path, held[Arm.CANDIDATE].settings)
            except UsageError as error:
                raise SettingIgnoredError(str(error)) from error
            turns = sorted(workers.values(), key=lambda worker: worker.arm is not self.block.first_arms[0])
            start_s = clock() - began
            self._turn(turns)  # untimed: what a step finds in the caches is what a step of the other arm has left
            until = clock() + start_s
            while not self.ended and (len(self.times) < self.script.steps or clock() < until):
                if self.pairing.should_stop():
                    return None
                if (seconds := self._turn(turns)) is not None:
                    self.times.append(seconds)
            for worker in turns:
                if worker.arm not in self.ended:
                    worker.stop_script(timeout_s=self.script.timeout_s)
        return ScriptPair(
            data_seed=self.block.data_seed,
            baseline_s=tuple(each[Arm.BASELINE] for each in self.times),
            candidate_s=tuple(each[Arm.CANDIDATE] for each in self.times),
            checks={arm: each.checks for arm, each in held.items()},
            dtypes=frozenset(dtype for each in held.values() for dtype in each.dtypes),
            settings={arm: each.settings for arm, each in held.items()},
            wall_s=clock() - began,
        )

    def start(self, arm: Arm, closing: ExitStack) -> ProfilingWorker:
        """Start a worker that has run nothing yet."""
        pairing = self.pairing
        worker = ProfilingWorker(arm, pairing.starter.start(arm, self.block, None), pairing.settings)
        closing.callback(worker.close)
        worker.hello_profiler(f"the {arm.value} worker", cpus=pairing.cpus)
        return worker

    def held(self, worker: ProfilingWorker) -> HeldScript:
        """Run the script up to the boundary from which steps are timed."""
        script = self.script
        try:
            started = worker.start_script(
                script.path, script.arguments, skip=script.skip, timeout_s=script.timeout_s, seed=self.block.data_seed
            )
        except (CaseRefused, WorkerFailure) as failure:
            raise self._failure(worker.arm, failure) from failure
        if isinstance(started, ScriptEnd):
            raise self._ended(worker.arm, started)
        return started

    def _turn(self, turns: Sequence[ProfilingWorker]) -> dict[Arm, float] | None:
        """A step of each arm; None where a script came to its end after the fewest steps."""
        seconds = _of_each(turns, self._step_s)
        return None if self.ended else {arm: step_s for arm, step_s in seconds.items() if step_s is not None}

    def _step_s(self, worker: ProfilingWorker) -> float | None:
        """Seconds of a step; None where either script has come to its end."""
        if self.ended:
            return None
        try:
            step = worker.script_step(StepKind.BARE, timeout_s=self.script.timeout_s)
        except (CaseRefused, WorkerFailure) as failure:
            raise self._failure(worker.arm, failure) from failure
        if not isinstance(step, ScriptEnd):
            return step.wall_s
        if script_failure(self.script.path, step) is not None or len(self.times) < self.script.steps:
            raise self._ended(worker.arm, step)
        self.ended.append(worker.arm)
        return None

    def _failure(self, arm: Arm, failure: CaseRefused | WorkerFailure) -> MeasurementError:
        return ScriptFailedError(arm, f"{self.script.path} failed: {failure.reason}\n{failure.detail}".strip())

    def _ended(self, arm: Arm, end: ScriptEnd) -> MeasurementError:
        failed = script_failure(self.script.path, end)
        if failed is not None:
            return ScriptFailedError(arm, str(failed))
        if not end.steps:
            return TooFewStepsError(
                f"{self.script.path} makes no step of a torch.optim optimizer in its main thread, so two arms cannot "
                "take turns; compare a benchmark of your own instead (README, Measure your own training step)"
            )
        return TooFewStepsError(
            f"{self.script.path} ended after {end.steps} optimizer steps; let it make more, for instance by a larger "
            "number of epochs"
        )


def _of_each(workers: Iterable[ProfilingWorker], work: Callable[[ProfilingWorker], _Found]) -> dict[Arm, _Found]:
    """What the work finds in each arm. A script that fails in both fails in the baseline, whichever arm comes first."""
    found: dict[Arm, _Found] = {}
    failures: dict[Arm, ScriptFailedError] = {}
    for worker in workers:
        try:
            found[worker.arm] = work(worker)
        except ScriptFailedError as error:
            failures[error.arm] = error
    for arm in _BOTH:
        if arm in failures:
            raise failures[arm]
    return found
