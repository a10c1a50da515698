"""From events back to data: what a run measured is a fold over its events."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfguard.records.events import (
    ArmReady,
    BlockFinished,
    BlockStarted,
    CanaryTimed,
    CaseCalibrated,
    CaseFailed,
    CaseFinished,
    Event,
    OpsCompared,
    RunStarted,
    SliceTimed,
    StageStarted,
    StepsCounted,
)
from perfguard.records.run import (
    Arm,
    BlockConditions,
    CaseChecks,
    CaseFailure,
    CaseIntrusion,
    CaseSlices,
    PairedData,
    Round,
    Signal,
    SignalSlices,
    Stage,
)
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, CensusChange


@dataclass(slots=True)
class RunData:
    """Collects events; `paired()` and `rounds()` give what they add up to so far."""

    case_ids: tuple[str, ...] = ()
    """Selected cases."""
    failures: dict[str, CaseFailed] = field(default_factory=dict)
    """First failure of each case, before any confirmation."""
    confirmation_failures: dict[str, CaseFailed] = field(default_factory=dict)
    """The same while flags were confirmed."""
    inner_loops: dict[str, int] = field(default_factory=dict)
    """Iterations of one slice, by case id."""
    missing_signals: dict[Arm, dict[str, str]] = field(default_factory=dict)
    """What the workers of each arm cannot read on this machine, and why."""
    census_changes: dict[str, tuple[CensusChange, ...]] = field(default_factory=dict)
    """What changed by op counts, by case id; cases that were not counted are missing."""
    attributions: dict[str, Attribution] = field(default_factory=dict)
    """Which ops are to blame, by case id, for the cases that were profiled."""
    stored_census_changes: dict[str, tuple[CensusChange, ...]] = field(default_factory=dict)
    """What changed since the op counts of a baseline stored on another machine, by case id."""
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Advice on what the candidate does and the baseline does not, by case id; cases without any are missing."""
    _slices: dict[tuple[int, str, Arm], list[SliceTimed]] = field(default_factory=dict)
    _complete: dict[tuple[int, str], CaseFinished] = field(default_factory=dict)
    _data_seeds: dict[int, int] = field(default_factory=dict)
    _canary: dict[int, list[float]] = field(default_factory=dict)
    _finished: dict[int, BlockFinished] = field(default_factory=dict)
    _stage: Stage = Stage.MAIN
    _stages: dict[int, Stage] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunData:
        """The data of a finished (or broken off) stream."""
        data = cls()
        for event in events:
            data.add(event)
        return data

    def add(self, event: Event) -> None:
        """Take one event into account; those that carry no data are ignored."""
        match event:
            case RunStarted() | ArmReady() | CaseCalibrated():
                self._prepare(event)
            case StepsCounted() | OpsCompared():
                self._explain(event)
            case StageStarted():
                self._stage = event.stage
            case BlockStarted():
                self._stages[event.block] = self._stage
                self._data_seeds[event.block] = event.data_seed
            case SliceTimed(warmup=False):
                key = (event.block, event.case_id, event.arm)
                self._slices.setdefault(key, []).append(event)
            case CanaryTimed():
                self._canary.setdefault(event.block, []).append(event.value_s)
            case CaseFinished():
                self._complete[event.block, event.case_id] = event
            case CaseFailed():
                confirming = self._stage.is_confirmation
                (self.confirmation_failures if confirming else self.failures).setdefault(event.case_id, event)
            case BlockFinished():
                self._finished[event.block] = event
            case _:
                pass

    def _prepare(self, event: RunStarted | ArmReady | CaseCalibrated) -> None:
        match event:
            case RunStarted():
                self.case_ids = event.case_ids
            case ArmReady():
                self.missing_signals[event.arm] = event.missing_signals
            case CaseCalibrated():
                self.inner_loops[event.case_id] = event.inner_loops

    def _explain(self, event: StepsCounted | OpsCompared) -> None:
        if isinstance(event, StepsCounted):
            changes = self.census_changes if event.counted_on is None else self.stored_census_changes
            changes[event.case_id] = event.changes
            return
        case_id = event.attribution.case_id
        self.attributions[case_id] = event.attribution
        self.findings.pop(case_id, None)
        if event.findings:
            self.findings[case_id] = event.findings

    @property
    def blocks_finished(self) -> int:
        """Blocks that ran to their end."""
        return len(self._finished)

    @property
    def next_block(self) -> int:
        """Number of the block that would come next."""
        return max(self._stages, default=-1) + 1

    def stage_of(self, block: int) -> Stage:
        """What a block was measured for."""
        return self._stages.get(block, Stage.MAIN)

    def blocks_of(self, stage: Stage) -> int:
        """Blocks of one stage that ran to their end."""
        return sum(self.stage_of(block) is stage for block in self._finished)

    @property
    def measured_s(self) -> float:
        """Wall seconds of the finished blocks together."""
        return sum(end.duration_s for end in self._finished.values())

    def longest_block_s(self, stage: Stage) -> float:
        """Wall seconds of a stage's longest block; 0 without one."""
        return max(
            (end.duration_s for block, end in self._finished.items() if self.stage_of(block) is stage),
            default=0.0,
        )

    def paired(self, stage: Stage = Stage.MAIN) -> PairedData:
        """Complete cases of a stage's finished blocks, both arms."""
        finished = {block: end for block, end in self._finished.items() if self.stage_of(block) is stage}
        failures = self.confirmation_failures if stage.is_confirmation else self.failures
        return PairedData(
            case_ids=self.case_ids,
            slices=tuple(
                CaseSlices(
                    case_id=case_id,
                    block=block,
                    baseline_s=self._values_s(block, case_id, Arm.BASELINE),
                    candidate_s=self._values_s(block, case_id, Arm.CANDIDATE),
                    wall_s=done.wall_s,
                )
                for (block, case_id), done in self._complete.items()
                if block in finished
            ),
            conditions=tuple(self._conditions(end) for end in finished.values()),
            failures=tuple(self._failure(failed) for failed in failures.values()),
        )

    def signals(self, stage: Stage = Stage.MAIN) -> tuple[SignalSlices, ...]:
        """What was measured beside wall time: each signal of complete cases in a stage's finished blocks, both arms."""
        return tuple(
            SignalSlices(
                case_id=case_id,
                block=block,
                signal=signal,
                baseline=self._signal_of(signal, block, case_id, Arm.BASELINE),
                candidate=self._signal_of(signal, block, case_id, Arm.CANDIDATE),
            )
            for block, case_id in self._complete
            if block in self._finished and self.stage_of(block) is stage
            for signal in Signal
        )

    def checks(self, stage: Stage = Stage.MAIN) -> tuple[CaseChecks, ...]:
        """What both arms computed, for each case and block of a stage."""
        return tuple(
            CaseChecks(
                case_id=case_id,
                data_seed=self._data_seeds.get(block),
                baseline=done.baseline_checks,
                candidate=done.candidate_checks,
            )
            for (block, case_id), done in self._complete.items()
            if self.stage_of(block) is stage
        )

    def intrusions(self, stage: Stage = Stage.MAIN) -> tuple[CaseIntrusion, ...]:
        """What each arm's processes used while the other was timed, for each case and block of a stage."""
        return tuple(
            CaseIntrusion(
                case_id=case_id,
                block=block,
                baseline_ratio=done.baseline_intrusion_ratio,
                candidate_ratio=done.candidate_intrusion_ratio,
            )
            for (block, case_id), done in self._complete.items()
            if self.stage_of(block) is stage
        )

    def waited_ratio(self) -> float | None:
        """Part of the timed slices' wall time in which steps waited for a CPU; None where no slice tells.

        Of all stages and arms together: it is a fact about the host, not about a case.
        """
        known = [
            (timed.waited_s, timed.value_s * (timed.iterations or self.inner_loops.get(case_id, 0)))
            for (_, case_id, _), slices in self._slices.items()
            for timed in slices
            if timed.waited_s is not None
        ]
        wall_s = math.fsum(slice_s for _, slice_s in known)
        return math.fsum(waited_s for waited_s, _ in known) / wall_s if wall_s > 0 else None

    def rounds(self) -> dict[str, tuple[Round, ...]]:
        """Complete rounds of each case in a one-arm run (the candidate's slices)."""
        found: dict[str, list[Round]] = {case_id: [] for case_id in self.case_ids}
        for (block, case_id), done in self._complete.items():
            end = self._finished.get(block) if self.stage_of(block) is Stage.MAIN else None
            values_s = self._values_s(block, case_id, Arm.CANDIDATE)
            if end is not None and values_s:
                canary = tuple(self._canary.get(block, ()))
                found[case_id].append(
                    Round(
                        values_s=values_s,
                        canary_s=canary,
                        started_at=end.started_at,
                        data_seed=self._data_seeds.get(block),
                        checks=done.candidate_checks,
                    )
                )
        return {case_id: tuple(rounds) for case_id, rounds in found.items()}

    def _values_s(self, block: int, case_id: str, arm: Arm) -> tuple[float, ...]:
        return tuple(timed.value_s for timed in self._slices.get((block, case_id, arm), ()))

    def _signal_of(self, signal: Signal, block: int, case_id: str, arm: Arm) -> tuple[float | None, ...]:
        loops = self.inner_loops.get(case_id, 0)
        return tuple(_signal(signal, timed, loops) for timed in self._slices.get((block, case_id, arm), ()))

    def _conditions(self, end: BlockFinished) -> BlockConditions:
        return BlockConditions(
            block=end.block,
            duration_s=end.duration_s,
            steal_ratio=end.steal_ratio,
            involuntary_switches=end.involuntary_switches,
            canary_s=tuple(self._canary.get(end.block, ())),
        )

    @staticmethod
    def _failure(failed: CaseFailed) -> CaseFailure:
        return CaseFailure(
            case_id=failed.case_id,
            arm=failed.arm,
            reason=failed.reason,
            detail=failed.detail,
            missing=failed.missing,
            skipped=failed.skipped,
        )


def _signal(signal: Signal, timed: SliceTimed, inner_loops: int) -> float | None:
    """A slice's value in the unit of its signal; recordings without iterations had one inner loop's worth of them."""
    amounts = {
        Signal.CPU: timed.cpu_s,
        Signal.MEMORY: timed.peak_memory_bytes,
        Signal.ENERGY: timed.energy_j,
        Signal.INSTRUCTIONS: timed.instructions,
    }
    if signal in amounts:
        return amounts[signal]
    iterations = timed.iterations or inner_loops
    count: int | None = timed.minor_faults
    if signal is Signal.SWITCHES:
        count = None if timed.voluntary_switches is None else timed.voluntary_switches + timed.involuntary_switches
    return None if count is None or not iterations else count / iterations
