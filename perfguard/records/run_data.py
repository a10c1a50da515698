"""From events back to data: what a run measured is a fold over its events, and this is the only one.

Gate, `show`, reports, series and everything that watches a run read what a `RunData` holds; nothing else knows what an
event means.
"""

from __future__ import annotations

import math
import statistics
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap

from msgspec import Struct, field

from perfguard.records import events as ev
from perfguard.records.case_block import (
    CaseBlock,
    checks_of,
    clock_of,
    cpu_clock_of,
    intrusion_of,
    signal_samples,
    times_of,
)
from perfguard.records.events import Event
from perfguard.records.run import (
    Arm,
    BlockConditions,
    CaseChecks,
    CaseClock,
    CaseFailed,
    CaseIntrusion,
    CaseSamples,
    PairedData,
    Round,
    SignalSamples,
    Stage,
)
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import Attribution, OpCountChange
from perfguard.records.task_results import CellRun, TaskData
from perfguard.records.tasks import TaskPlan
from perfguard.records.training import TrainedOn, TrainingEpoch, TrainingOutcome, TrainingPlanned, TrainingUse
from perfguard.records.training_data import TrainingData
from perfguard.records.verdict import Outcome

_OfTraining = TrainingPlanned | TrainedOn | TrainingEpoch | TrainingUse | TrainingOutcome
_OfTask = TaskPlan | CellRun
_OfCases = ev.CaseUntouched | CaseFailed | ev.StepsCounted | ev.OpsCompared | ev.VerdictReached
_OfJudging = _OfCases | ev.InterimAnalysis | ev.RunFinished

_OTHER_COMPARISONS = (Stage.CONFIRMATION, Stage.DRIFT, Stage.DRIFT_CONFIRMATION)
"""Relocated arms and the anchor: their blocks are no part of a case's effect."""


class RunData(Struct):
    """Collects events; `paired()` and `rounds()` give what they add up to so far."""

    case_ids: tuple[str, ...] = ()  # Selected cases
    failures: dict[str, CaseFailed] = field(default_factory=dict)  # First failure of each case, before any confirmation
    confirmation_failures: dict[str, CaseFailed] = field(default_factory=dict)  # The same while flags were confirmed
    untouched: dict[str, ev.CaseUntouched] = field(default_factory=dict)  # Cases that the change does not reach
    inner_loops: dict[str, int] = field(default_factory=dict)  # Iterations of one sample, by case id
    missing_signals: dict[Arm, dict[str, str]] = field(default_factory=dict)  # Signals that an arm lacks, and why
    op_count_changes: dict[str, tuple[OpCountChange, ...]] = field(default_factory=dict)
    """What changed by op counts, by case id; cases that were not counted are missing."""
    attributions: dict[str, Attribution] = field(default_factory=dict)  # Culprits, by case id
    stored_op_count_changes: dict[str, tuple[OpCountChange, ...]] = field(default_factory=dict)
    """What changed since the op counts of a baseline stored on another machine, by case id."""
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Advice on what the candidate does and the baseline does not, by case id; cases without any are missing."""
    ops_files: dict[str, str] = field(default_factory=dict)  # By case id: file with all differences between ops
    start: ev.RunStarted | None = None  # What was started; None before the first event, or where a recording lost it
    end: ev.RunFinished | None = None  # How the run ended; None while it goes on
    arms: dict[Arm, ev.ArmReady] = field(default_factory=dict)  # The arms, once they were started
    is_identical: bool | None = None  # Whether both arms hash identical; None before it was found out
    answers: dict[str, str] = field(default_factory=dict)  # Outcome by case id, of cases that an analysis answered
    verdicts: dict[str, ev.VerdictReached] = field(default_factory=dict)  # Verdict by case id
    notes: list[ev.Noted] = field(default_factory=list)  # What the reader of the run should know, in order
    stage: Stage = Stage.MAIN  # What is measured now
    block: int | None = None  # Number of the present or last block; None before the first
    blocks_planned: int | None = None  # Blocks of earlier stages and those this one's analyses are spread over, or None
    timing: str | None = None  # Case whose samples are timed now, as far as events tell
    timed_samples: int = 0  # Its samples in this block so far, both arms
    control_ratio: float | None = None  # Last control workload over the run's typical one, minus 1; None before any
    steal_ratio: float | None = None  # Share of the last block's time that the hypervisor took; None where unknown
    slowest_block_s: float = 0.0  # Wall seconds of the longest block of all stages
    training: TrainingData | None = None  # Of a run that trains; None for all others
    task: TaskData | None = None  # Of a run of a task; None for all others
    revisions: Counter[str] = field(default_factory=Counter)
    """How often something was learnt of each case: whoever draws cases draws those again that have another number."""
    keeps_signals: bool = True  # Whether samples keep all signals; times alone need a tenth of the memory
    _blocks: dict[tuple[int, str], CaseBlock] = field(default_factory=dict)
    _by_case: dict[str, list[CaseBlock]] = field(default_factory=dict)
    _data_seeds: dict[int, int] = field(default_factory=dict)
    _control: dict[int, list[float]] = field(default_factory=dict)
    _sorted_controls: list[float] = field(default_factory=list)
    _finished: dict[int, ev.BlockFinished] = field(default_factory=dict)
    _stages: dict[int, Stage] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunData:
        """The data of a finished (or broken off) stream."""
        data = cls()
        for event in events:
            data.add(event)
        return data

    def add(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case ev.SampleTimed() | ev.ControlTimed() | ev.CaseFinished() | ev.BlockStarted() | ev.BlockFinished():
                self._measure(event)
            case ev.RunStarted():
                self.start, self.case_ids = event, event.case_ids
            case ev.ArmReady():
                self.arms[event.arm] = event
                self.missing_signals[event.arm] = event.missing_signals
            case ev.ArmsCompared():
                self.is_identical = event.identical
            case ev.CaseCalibrated():
                self.inner_loops[event.case_id] = event.inner_loops
            case ev.Noted():
                self.notes.append(event)
            case ev.StageStarted():
                self.stage, self.blocks_planned = event.stage, None
            case ev.AnalysesPlanned():
                earlier = sum(self.stage_of(block) is not self.stage for block in self._finished)
                self.blocks_planned = earlier + event.blocks
            case (
                TrainingPlanned()
                | TrainedOn()
                | TrainingEpoch()
                | TrainingUse()
                | TrainingOutcome()
                | TaskPlan()
                | CellRun()
            ):
                self._train_or_run_task(event)
            case _:
                self._decide(event)

    def _measure(
        self, event: ev.SampleTimed | ev.ControlTimed | ev.CaseFinished | ev.BlockStarted | ev.BlockFinished
    ) -> None:
        if isinstance(event, ev.ControlTimed):
            self._control.setdefault(event.block, []).append(event.value_s)
            insort(self._sorted_controls, event.value_s)
            typical_s = _middle(self._sorted_controls)
            self.control_ratio = event.value_s / typical_s - 1 if typical_s > 0 else None
            return
        self._time(event.case_id if isinstance(event, ev.SampleTimed) else None)
        match event:
            case ev.SampleTimed(warmup=False):
                self._add_sample(event)
            case ev.CaseFinished():
                self._case_block(event.block, event.case_id).done = event
                self.revisions[event.case_id] += 1
            case ev.BlockStarted():
                self.block, self._stages[event.block] = event.block, self.stage
                self._data_seeds[event.block] = event.data_seed
            case ev.BlockFinished():
                self._finish_block(event)

    def _add_sample(self, timed: ev.SampleTimed) -> None:
        self.timed_samples += 1
        found = self._case_block(timed.block, timed.case_id)
        found.of(timed.arm).append(timed, keeps_signals=self.keeps_signals)
        self.revisions[timed.case_id] += 1

    def _finish_block(self, event: ev.BlockFinished) -> None:
        self.block, self._finished[event.block] = event.block, event
        self.steal_ratio = event.steal_ratio
        self.slowest_block_s = max(self.slowest_block_s, event.duration_s)
        for case_id, blocks in self._by_case.items():
            last = blocks[-1]
            if last.block == event.block and last.done is not None:
                last.is_finished = True
                self.revisions[case_id] += 1

    def _time(self, case_id: str | None) -> None:
        """Another case is timed from here on, or none."""
        if case_id != self.timing:
            self.timing, self.timed_samples = case_id, 0

    def _case_block(self, block: int, case_id: str) -> CaseBlock:
        found = self._blocks.get((block, case_id))
        if found is None:
            # A damaged recording may lack the start of the block.
            found = CaseBlock(case_id, block, self._stages.setdefault(block, self.stage))
            self._blocks[block, case_id] = found
            self._by_case.setdefault(case_id, []).append(found)
        return found

    def _decide(self, event: _OfJudging) -> None:
        match event:
            case ev.CaseUntouched():
                self.untouched[event.case_id] = event
                self.answers[event.case_id] = Outcome.UNTOUCHED.value
            case ev.InterimAnalysis():
                self.answers |= event.decided
                self.revisions.update(event.decided.keys())
            case CaseFailed():
                self._time(None)
                self._failures(self.stage).setdefault(event.case_id, event)
            case ev.StepsCounted():
                changes = self.op_count_changes if event.counted_on is None else self.stored_op_count_changes
                changes[event.case_id] = event.changes
            case ev.OpsCompared():
                case_id = event.attribution.case_id
                self.attributions[case_id], self.ops_files[case_id] = event.attribution, event.file
                self.findings.pop(case_id, None)
                if event.findings:
                    self.findings[case_id] = event.findings
                self.revisions[case_id] += 1
            case ev.VerdictReached():
                self.verdicts[event.case_id] = event
            case ev.RunFinished():
                self._time(None)
                self.end = event
        if isinstance(event, (CaseFailed, ev.CaseUntouched, ev.StepsCounted, ev.VerdictReached)):
            self.revisions[event.case_id] += 1

    def _train_or_run_task(self, event: _OfTraining | _OfTask) -> None:
        match event:
            case TrainingPlanned():
                self.training = TrainingData(event)
            case TrainedOn() | TrainingEpoch() | TrainingUse() | TrainingOutcome() if self.training is not None:
                self.training.add(event)
            case TaskPlan():
                self.task = TaskData(event)
            case CellRun() if self.task is not None:
                self.task.runs.append(event)

    def _failures(self, stage: Stage) -> dict[str, CaseFailed]:
        return self.confirmation_failures if stage.is_confirmation else self.failures

    @property
    def known_ids(self) -> tuple[str, ...]:
        """The selected cases; where a recording lost its start, those that its events name."""
        return self.case_ids if self.start is not None else tuple(self.revisions)

    def effect_blocks(self, case_id: str) -> list[CaseBlock]:
        """The blocks that a case's effect comes from; the last ones may be unfinished.

        Those of the pairing that followed a stored baseline, or else of the main stage.
        """
        blocks = [block for block in self._by_case.get(case_id, ()) if block.stage not in _OTHER_COMPARISONS]
        paired = [block for block in blocks if block.stage is Stage.PAIRING]
        return paired or blocks

    def conditions(self, stage: Stage) -> tuple[BlockConditions, ...]:
        """What the host did during a stage's finished blocks."""
        return tuple(
            BlockConditions(
                block=end.block,
                duration_s=end.duration_s,
                steal_ratio=end.steal_ratio,
                involuntary_switches=end.involuntary_switches,
                control_s=tuple(self._control.get(end.block, ())),
                foreign_ratio=end.foreign_ratio,
            )
            for end in self._ends(stage)
        )

    def foreign_load(self) -> tuple[float, str] | None:
        """What other programs took of the measured CPUs in the typical block, and which took most; None where unknown.

        Of all stages together: it is a fact about the host.
        """
        known = [end.foreign_ratio for end in self._finished.values() if end.foreign_ratio is not None]
        names = Counter(end.foreign_name for end in self._finished.values() if end.foreign_name)
        return (statistics.median(known), names.most_common(1)[0][0]) if known and names else None

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

    def _ends(self, stage: Stage) -> list[ev.BlockFinished]:
        return [end for block, end in self._finished.items() if self.stage_of(block) is stage]

    def blocks_of(self, stage: Stage) -> int:
        """Blocks of one stage that ran to their end."""
        return len(self._ends(stage))

    @property
    def measured_s(self) -> float:
        """Wall seconds of the finished blocks together."""
        return sum(end.duration_s for end in self._finished.values())

    def longest_block_s(self, stage: Stage) -> float:
        """Wall seconds of a stage's longest block; 0 without one."""
        return max((end.duration_s for end in self._ends(stage)), default=0.0)

    def last_block_s(self, stage: Stage) -> float:
        """Wall seconds of a stage's last block; 0 without one."""
        return next((end.duration_s for end in reversed(self._ends(stage))), 0.0)

    def paired(self, stage: Stage = Stage.MAIN) -> PairedData:
        """Complete cases of a stage's finished blocks, both arms."""
        samples = tuple(times_of(block, done) for block, done in self._complete(stage) if block.is_finished)
        return PairedData(
            case_ids=self.case_ids,
            samples=samples,
            conditions=self.conditions(stage),
            failures=tuple(self._failures(stage).values()),
        )

    def samples_of(self, case_id: str, stage: Stage) -> list[CaseSamples]:
        """The same of one case alone."""
        blocks = (each for each in self._complete(stage) if each[0].is_finished and each[0].case_id == case_id)
        return list(starmap(times_of, blocks))

    def signals(self, stage: Stage = Stage.MAIN) -> tuple[SignalSamples, ...]:
        """What was measured beside wall time: each signal of complete cases in a stage's finished blocks, both arms."""
        return tuple(
            samples
            for block, _ in self._complete(stage)
            if block.is_finished
            for samples in signal_samples(block, self.inner_loops.get(block.case_id, 0))
        )

    def checks(self, stage: Stage = Stage.MAIN) -> tuple[CaseChecks, ...]:
        """What both arms computed, for each case and block of a stage."""
        dtypes = tuple(arm.parameters["dtype"] for arm in self.arms.values() if "dtype" in arm.parameters)
        return tuple(
            checks_of(block, done, data_seed=self._data_seeds.get(block.block), dtypes=dtypes)
            for block, done in self._complete(stage)
        )

    def with_kept_inputs(self, stage: Stage = Stage.MAIN) -> tuple[str, ...]:
        """Ids of a stage's cases whose inputs were the same in all calls."""
        return tuple(dict.fromkeys(done.case_id for _, done in self._complete(stage) if done.is_varied is False))

    def intrusions(self, stage: Stage = Stage.MAIN) -> tuple[CaseIntrusion, ...]:
        """What each arm's processes used while the other was timed, for each case and block of a stage."""
        return tuple(intrusion_of(block, done) for block, done in self._complete(stage))

    def clocks(self, stage: Stage = Stage.MAIN) -> tuple[CaseClock, ...]:
        """The parent's clock beside the workers', for each case and block of a stage in which both can be compared.

        They cannot in older recordings, nor where the baseline makes a state again before each call.
        """
        return tuple(clock for block, _ in self._complete(stage) if (clock := clock_of(block)) is not None)

    def cpu_clocks(self, stage: Stage = Stage.MAIN) -> tuple[CaseClock, ...]:
        """The same of CPU seconds."""
        return tuple(clock for block, _ in self._complete(stage) if (clock := cpu_clock_of(block)) is not None)

    def _complete(self, stage: Stage) -> Iterator[tuple[CaseBlock, ev.CaseFinished]]:
        """Complete cases of a stage's blocks, also of one that did not come to its end, with what ended each."""
        for block in self._blocks.values():
            if block.done is not None and block.stage is stage:
                yield block, block.done

    def waited_ratio(self) -> float | None:
        """Part of the timed samples' wall time in which steps waited for a CPU; None where it was not read.

        Of all stages and arms together: it is a fact about the host, not about a case.
        """
        waited_s = wall_s = 0.0
        for block in self._blocks.values():
            loops = self.inner_loops.get(block.case_id, 0)
            for timed in (*block.baseline, *block.candidate):
                if timed.waited_s is not None:
                    waited_s += timed.waited_s
                    wall_s += timed.value_s * (timed.iterations or loops)
        ratio = waited_s / wall_s if wall_s > 0 else math.nan
        return ratio if math.isfinite(ratio) else None

    def rounds(self) -> dict[str, tuple[Round, ...]]:
        """Complete rounds of each case in a one-arm run (the candidate's samples)."""
        found: dict[str, list[Round]] = {case_id: [] for case_id in self.case_ids}
        for block, done in self._complete(Stage.MAIN):
            if block.is_finished and block.candidate_s and block.case_id in found:
                found[block.case_id].append(
                    Round(
                        values_s=tuple(block.candidate_s),
                        control_s=tuple(self._control.get(block.block, ())),
                        started_at=self._finished[block.block].started_at,
                        data_seed=self._data_seeds.get(block.block),
                        checks=done.candidate_checks,
                    )
                )
        return {case_id: tuple(rounds) for case_id, rounds in found.items()}


def _middle(ordered: Sequence[float]) -> float:
    """The median of values in ascending order; `statistics.median` would sort them again."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
