"""What a screen shows of a run, computed from its data; only what has changed is made again."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from perfguard.errors import MeasurementError
from perfguard.records import events as ev
from perfguard.records.case_block import CaseBlock
from perfguard.records.case_names import short_names
from perfguard.records.estimate import Estimate
from perfguard.records.events import Event
from perfguard.records.facts import Fact, Severity, Subject, fact
from perfguard.records.run import Arm, CaseFailed, Stage
from perfguard.records.run_data import RunData
from perfguard.records.tasks import TaskPlan
from perfguard.records.training import TrainingOutcome, TrainingPlanned, TrainingUse
from perfguard.records.verdict import GateOutcome, Outcome, Policy
from perfguard.units import printable
from perfguard.watch.sources.event_tail import SeenEvent
from perfguard.watch.view.run_view import (
    ArmView,
    CaseSeries,
    CaseState,
    CaseView,
    Level,
    LogLine,
    Progress,
    RunState,
    RunView,
    TaskView,
    TrainingView,
)

if TYPE_CHECKING:
    from perfguard.stats.paired import BlockEffect


MAX_LOG_LINES = 2000  # The latest ones are kept; all of them are in the recording
MAX_NOTES = 500
_LEVEL = Policy().interval_level
_NOTHING_COMPARED = "measured"  # Outcome of runs with one arm


class WatchedCase:
    """One case; what its finished blocks come to is kept, so that a screen every second costs little."""

    def __init__(self, case_id: str, data: RunData) -> None:
        self.case_id = case_id
        self._data = data
        self._effects: dict[int, BlockEffect] = {}
        self._medians_s: dict[tuple[int, Arm], float] = {}
        self._estimate: tuple[object, Estimate | None, tuple[Fact, ...]] = (None, None, ())
        self._row: tuple[object, CaseView] | None = None

    def view(self, name: str, *, is_timed: bool, voided: frozenset[int]) -> CaseView:
        """The case's row under its short name, without voided blocks; the same object where nothing changed."""
        key = (self._data.revisions[self.case_id], name, is_timed, voided, self._data.end is None)
        if self._row is None or self._row[0] != key:
            self._row = (key, self._drawn(name, is_timed=is_timed, voided=voided))
        return self._row[1]

    def series(self, voided: frozenset[int]) -> CaseSeries:
        """The case's curves, with those of its blocks that are left out of the effect."""
        blocks = self._data.effect_blocks(self.case_id)
        try:
            effects = self._effects_of(blocks) if any(block.baseline_s for block in blocks) else []
        except MeasurementError:  # said in the row
            effects = []
        pairs = [(block.block, effect.log_ratio) for block, effect in effects if not math.isnan(effect.log_ratio)]
        return CaseSeries(
            case_id=self.case_id,
            baseline_s=tuple(value_s for block in blocks for value_s in block.baseline_s),
            candidate_s=tuple(value_s for block in blocks for value_s in block.candidate_s),
            block_log_ratios=tuple(ratio for _, ratio in pairs),
            blocks=tuple(number for number, _ in pairs),
            voided=voided.intersection(number for number, _ in pairs),
        )

    def _drawn(self, name: str, *, is_timed: bool, voided: frozenset[int]) -> CaseView:
        data, case_id = self._data, self.case_id
        blocks = data.effect_blocks(case_id)
        finished = [block for block in blocks if block.is_finished]
        baseline, candidate = (sum(len(block.of(arm)) for block in blocks) for arm in Arm)
        estimate, reasons = self._estimated(finished, voided) if baseline else (None, ())
        log_ratio = estimate.log_ratio if estimate else None
        lower, upper = (estimate.interval.lower, estimate.interval.upper) if estimate else (None, None)
        verdict, failure = data.verdicts.get(case_id), data.failures.get(case_id)
        outcome = verdict.outcome if verdict else data.answers.get(case_id)
        if verdict:
            reasons = verdict.reasons
            if verdict.log_ratio is not None:  # later rulings and other stages went into it
                log_ratio, lower, upper = verdict.log_ratio, verdict.lower, verdict.upper
        elif failure:
            reasons = (replace(failure.reason, subject=Subject(arm=failure.arm.value)),)
        left_out = sum(block.block in voided for block in finished)
        return CaseView(
            case_id=case_id,
            name=name,
            is_gating=data.start is None or case_id not in data.start.advisory_ids,
            state=self._state(outcome, is_timed=is_timed, is_measured=bool(baseline or candidate)),
            blocks=len(finished) - left_out,
            voided=left_out,
            samples=min(baseline, candidate) if baseline else candidate,
            baseline_s=(verdict and verdict.baseline_s) or self._median_s(blocks, Arm.BASELINE, voided),
            candidate_s=(verdict and verdict.candidate_s) or self._median_s(blocks, Arm.CANDIDATE, voided),
            log_ratio=log_ratio,
            lower=lower,
            upper=upper,
            noise_ratio=estimate.block_sd if estimate else None if baseline else self._noise(finished),
            outcome=outcome,
            reasons=reasons,
            op_counts=data.op_count_changes.get(case_id),
            attribution=data.attributions.get(case_id),
            findings=data.findings.get(case_id, ()),
        )

    def _estimated(
        self, finished: Sequence[CaseBlock], voided: frozenset[int]
    ) -> tuple[Estimate | None, tuple[Fact, ...]]:
        """The effect so far by the gate's estimator, None before two blocks, and what forbids one."""
        from perfguard.stats.paired import estimate_paired

        key = ([block.block for block in finished], voided)
        if key != self._estimate[0]:
            self._estimate = (key, None, ())
            try:
                if len(finished) >= 2:
                    kept = [effect for block, effect in self._effects_of(finished) if block.block not in voided]
                    found = estimate_paired([each.log_ratio for each in kept], _LEVEL, [each.variance for each in kept])
                    self._estimate = (key, found if found.blocks >= 2 else None, ())
            except MeasurementError as error:
                self._estimate = (key, None, (fact("case.unusable_times", error=str(error)),))
        return self._estimate[1:]

    def _effects_of(self, blocks: Iterable[CaseBlock]) -> list[tuple[CaseBlock, BlockEffect]]:
        """What each finished block says; nan where it holds no pair. MeasurementError: a sample is no time."""
        from perfguard.stats.paired import block_effect

        finished = [block for block in blocks if block.is_finished]
        for block in finished:
            if block.block not in self._effects:
                self._effects[block.block] = block_effect(block.baseline_s, block.candidate_s)
        return [(block, self._effects[block.block]) for block in finished]

    def _median_s(self, blocks: Sequence[CaseBlock], arm: Arm, voided: Collection[int]) -> float | None:
        """Median over the blocks' medians; over the samples so far before the first block has ended."""
        medians_s = self._block_medians_s(blocks, arm, voided)
        values_s = medians_s or [value_s for block in blocks for value_s in block.of(arm).values_s]
        return statistics.median(values_s) if values_s else None

    def _block_medians_s(self, blocks: Iterable[CaseBlock], arm: Arm, voided: Collection[int]) -> list[float]:
        found = []
        for block in blocks:
            if block.is_finished and block.block not in voided and block.of(arm):
                key = (block.block, arm)
                if key not in self._medians_s:
                    self._medians_s[key] = statistics.median(block.of(arm).values_s)
                found.append(self._medians_s[key])
        return found

    def _noise(self, rounds: Sequence[CaseBlock]) -> float | None:
        """Standard deviation between the rounds of one arm; None with fewer than two."""
        medians_s = self._block_medians_s(rounds, Arm.CANDIDATE, ())
        if len(medians_s) < 2 or min(medians_s) <= 0:
            return None
        return statistics.stdev(math.log(median_s) for median_s in medians_s)

    def _state(self, outcome: str | None, *, is_timed: bool, is_measured: bool) -> CaseState:
        if is_timed:
            return CaseState.MEASURING
        if outcome == Outcome.FAILED.value or (self.case_id in self._data.failures and outcome is None):
            return CaseState.FAILED
        if outcome is not None:
            return CaseState.ANSWERED
        if not is_measured:
            return CaseState.WAITING
        end = self._data.end
        return CaseState.MEASURED if end is not None and end.outcome == _NOTHING_COMPARED else CaseState.OPEN


class _Moment(Struct, frozen=True, kw_only=True):
    t_wall: float
    t_mono: float


class WatchedRun:
    """A run's data with the times of its events and its log; `view` says what they come to."""

    def __init__(self, listen: Callable[[LogLine], None] | None = None) -> None:
        """Know nothing yet; `listen` hears every line of the log, of which only the latest ones are kept."""
        self.data = RunData(keeps_signals=False)
        self.last: _Moment | None = None
        self._listen = listen
        self._first: _Moment | None = None
        self._cases: dict[str, WatchedCase] = {}
        self._voided: tuple[int, frozenset[int]] = (0, frozenset())
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._rows: tuple[CaseView, ...] = ()
        self._judged: TaskView | None = None
        self._lines: tuple[LogLine, ...] = ()
        self._is_log_new = False

    def add(self, seen: SeenEvent) -> None:
        """Take one event into account."""
        self.last = _Moment(t_wall=seen.t_wall, t_mono=seen.t_mono)
        self._first = self._first or self.last
        self.data.add(seen.event)
        level = level_of(seen.event)
        if level is not None:
            self.say(LogLine(seq=seen.seq, t_wall=seen.t_wall, level=level, what=seen.event))

    def say(self, line: LogLine) -> None:
        """Add a line to the log."""
        self._log.append(line)
        self._is_log_new = True
        if self._listen is not None:
            self._listen(line)

    def series(self, case_id: str) -> CaseSeries:
        """The curves of one case; empty ones where it is unknown."""
        return self._case(case_id).series(self._voided[1])

    def view(
        self, *, state: RunState, now_wall: float, rounds_planned: int | None, problems: tuple[Fact, ...]
    ) -> RunView:
        """What is known, as one value; parts that did not change are the same objects as before.

        `now_wall` is the run's wall clock, seconds since the epoch; `rounds_planned` is for runs with one arm.
        """
        data, start, end = self.data, self.data.start, self.data.end
        # Of a run that died nothing is timed, whatever it said last.
        timing = data.timing if state is RunState.MEASURING else None
        if self._is_log_new:
            self._lines, self._is_log_new = tuple(self._log), False
        return RunView(
            run_id=start.run_id if start else None,
            state=state,
            mode=start.mode if start else "",
            suite=printable(start.suite) if start else "",
            command=start.command if start else (),
            started_at=self._first.t_wall if self._first else None,
            arms=tuple(ArmView(arm=arm, text=printable(data.arms[arm].text)) for arm in Arm if arm in data.arms),
            is_identical=data.is_identical,
            progress=self._progress(state, now_wall, rounds_planned, timing),
            cases=self._case_rows(timing),
            training=self._training(),
            task=self._task(),
            outcome=end.outcome if end else None,
            exit_code=end.exit_code if end else None,
            reasons=end.reasons if end else (),
            notes=tuple(note.fact for note in data.notes[-MAX_NOTES:]),
            problems=problems,
            log=self._lines,
            steal_ratio=data.steal_ratio,
            control_ratio=data.control_ratio,
        )

    def _training(self) -> TrainingView | None:
        known = self.data.training
        if known is None:
            return None
        return TrainingView(
            planned=known.planned, trained=known.trained, epochs=tuple(known.epochs), uses=tuple(known.uses)
        )

    def _task(self) -> TaskView | None:
        """Judged again where something was measured since."""
        known = self.data.task
        if known is None:
            return None
        if self._judged is None or len(self._judged.runs) != len(known.runs):
            from perfguard.tasks.judging import judge

            self._judged = TaskView(plan=known.plan, runs=tuple(known.runs), cells=judge(known.plan, known.runs))
        return self._judged

    def _case(self, case_id: str) -> WatchedCase:
        return self._cases.setdefault(case_id, WatchedCase(case_id, self.data))

    def _case_rows(self, timing: str | None) -> tuple[CaseView, ...]:
        voided = self._voided_blocks()
        names = short_names(self.data.known_ids)
        rows = tuple(
            self._case(case_id).view(name, is_timed=case_id == timing, voided=voided) for case_id, name in names.items()
        )
        if len(rows) != len(self._rows) or any(a is not b for a, b in zip(rows, self._rows, strict=True)):
            self._rows = rows
        return self._rows

    def _voided_blocks(self) -> frozenset[int]:
        """Blocks that the arm-blind rule leaves out so far; blocks have one numbering for all stages."""
        if self.data.blocks_finished != self._voided[0]:
            from perfguard.stats.voiding import voided_blocks

            self._voided = (self.data.blocks_finished, voided_blocks(self.data))
        return self._voided[1]

    def _progress(
        self, state: RunState, now_wall: float, rounds_planned: int | None, timing: str | None
    ) -> Progress | None:
        if self._first is None or self.last is None:
            return None
        data = self.data
        is_running = state in (RunState.PREPARING, RunState.MEASURING)
        elapsed_s = max(0.0, self.last.t_mono - self._first.t_mono)
        if is_running:
            elapsed_s += max(0.0, now_wall - self.last.t_wall)
        # Full seconds: a view that differs in less is not worth a repaint.
        elapsed_s = float(round(elapsed_s)) if math.isfinite(elapsed_s) else 0.0
        budget_s = data.start.budget_s if data.start else 0.0
        planned, finished = data.blocks_planned, data.blocks_finished
        if planned is None and data.stage is Stage.MAIN:
            planned = rounds_planned
        return Progress(
            stage=data.stage,
            block=data.block,
            blocks_finished=finished,
            blocks_planned=None if planned is None or not finished else max(planned, finished),
            case_id=timing,
            sample_index=data.timed_samples if timing else None,
            elapsed_s=elapsed_s,
            budget_s=budget_s,
            left_s=max(0.0, budget_s - elapsed_s) if is_running and budget_s > 0 else None,
        )


_ERRORS = {
    Outcome.REGRESSED.value,
    Outcome.FAILED.value,
    Outcome.INVALID.value,
    GateOutcome.REGRESSED.value,
    GateOutcome.FAILED.value,
}
_WARNINGS = {
    *(Outcome.DIFFERENT.value, Outcome.INCOMPARABLE.value, Outcome.NO_BASELINE.value, Outcome.INCONCLUSIVE.value),
    *(GateOutcome.HOST_UNSTABLE.value, "interrupted"),
}


def level_of(event: Event) -> Level | None:
    """How grave an event is; None for what comes many times a second and for what its neighbours say, too."""
    match event:
        case (
            ev.SampleTimed()
            | ev.ControlTimed()
            | ev.CaseFinished()
            | TrainingPlanned()
            | TrainingUse()
            | TrainingOutcome()
            | TaskPlan()
            | ev.ArmsCompared(identical=False)
            | ev.StepsCounted(changes=())
        ):
            return None
        case ev.InterimAnalysis():
            return _worst(event.decided.values()) if event.decided or event.final else None
        case CaseFailed(skipped=False):
            return "error"
        case ev.StepsCounted() | ev.Noted():
            return "info" if isinstance(event, ev.Noted) and event.fact.severity is Severity.INFO else "warning"
        case ev.VerdictReached() | ev.RunFinished():
            return _worst([event.outcome])
        case _:
            return "info"


def _worst(outcomes: Iterable[str]) -> Level:
    found = set(outcomes)
    if found & _ERRORS:
        return "error"
    return "warning" if found & _WARNINGS else "info"
