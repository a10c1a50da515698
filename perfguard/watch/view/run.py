"""A run's events, folded as they come into what a screen shows; never keeps the slices' events themselves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from perfguard.records.events import (
    ArmReady,
    ArmsCompared,
    BlockFinished,
    BlockStarted,
    CanaryTimed,
    CaseFailed,
    CaseFinished,
    Event,
    LooksPlanned,
    LookTaken,
    Noted,
    OpsCompared,
    RunFinished,
    RunStarted,
    SliceTimed,
    StageStarted,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import Fact
from perfguard.records.run import Arm, Stage
from perfguard.report.event_lines import log_line
from perfguard.units import printable
from perfguard.watch.sources.line_reader import SeenEvent
from perfguard.watch.view.cases import WatchedCase
from perfguard.watch.view.host import WatchedHost
from perfguard.watch.view.run_view import ArmView, CaseView, LogLine, Progress, RunState, RunView

MAX_LOG_LINES = 2000
"""The latest ones are kept; all of them are in the recording."""
MAX_NOTES = 500
_NOTHING_COMPARED = "measured"
"""Outcome of runs with one arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    t_wall: float
    t_mono: float


class RunFold:
    """Everything that is known of a run; `add` takes one event, `view` says what it came to."""

    def __init__(self, listen: Callable[[LogLine], None] | None = None) -> None:
        """Know nothing yet.

        Args:
            listen: Hears every line of the log, of which only the latest ones are kept.
        """
        self._listen = listen
        self.start: RunStarted | None = None
        self.end: RunFinished | None = None
        self.arms: dict[Arm, ArmReady] = {}
        self.stage = Stage.MAIN
        self.block: int | None = None
        self.blocks_finished = 0
        self.is_block_open = False
        self.slowest_block_s = 0.0
        self.last: _Moment | None = None
        self.cases: dict[str, WatchedCase] = {}
        self._first: _Moment | None = None
        self._identical: bool | None = None
        self._timed: str | None = None
        self._timed_slices = 0
        self._planned: int | None = None
        self._finished_before_stage = 0
        self._stage_of_block: dict[int, Stage] = {}
        self._host = WatchedHost()
        self._notes: deque[Fact] = deque(maxlen=MAX_NOTES)
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._rows: tuple[CaseView, ...] = ()
        self._lines: tuple[LogLine, ...] | None = ()

    @property
    def is_timing(self) -> bool:
        """Whether slices of a case are timed now, as far as events tell."""
        return self._timed is not None

    @property
    def voided(self) -> frozenset[int]:
        """Blocks that the arm-blind rule leaves out of all effects."""
        return self._host.voided

    @property
    def started_at(self) -> float | None:
        """Time of its first event, seconds since the epoch."""
        return self._first.t_wall if self._first else None

    def add(self, seen: SeenEvent) -> None:
        """Take one event into account."""
        self.last = _Moment(t_wall=seen.t_wall, t_mono=seen.t_mono)
        self._first = self._first or self.last
        event = seen.event
        if isinstance(event, SliceTimed):
            self._add_slice(event)
            return
        if isinstance(event, CanaryTimed):
            self._host.add_canary(event)
            return
        self._prepare(event)
        self._measure(event)
        self._conclude(event)
        line = log_line(event, seq=seen.seq, t_wall=seen.t_wall)
        if line is not None:
            self.say(line)

    def say(self, line: LogLine) -> None:
        """Add a line to the log."""
        self._log.append(line)
        self._lines = None
        if self._listen is not None:
            self._listen(line)

    def _prepare(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.start = event
                for case_id in event.case_ids:
                    is_gating = case_id not in event.advisory_ids
                    self.cases.setdefault(case_id, WatchedCase(case_id, is_gating=is_gating))
            case ArmReady():
                self.arms[event.arm] = event
            case ArmsCompared():
                self._identical = event.identical
            case Noted():
                self._notes.append(event.fact)
            case _:
                pass

    def _measure(self, event: Event) -> None:
        match event:
            case StageStarted():
                self.stage, self._planned = event.stage, None
                self._finished_before_stage = self.blocks_finished
            case BlockStarted():
                self._begin_block(event)
            case CaseFinished():
                self._time(None)
                self._case(event.case_id).complete(event.block, self._stage_of(event.block))
            case CaseFailed():
                self._time(None)
                if not self.stage.is_confirmation:
                    self._case(event.case_id).fail(event)
            case BlockFinished():
                self._finish_block(event)
            case LooksPlanned():
                self._planned = self._finished_before_stage + event.blocks
            case _:
                pass

    def _conclude(self, event: Event) -> None:
        match event:
            case LookTaken():
                for case_id, outcome in event.decided.items():
                    self._case(case_id).answer(outcome)
            case StepsCounted(counted_on=None):  # what another machine counted is no comparison of these arms
                self._case(event.case_id).count(event.changes)
            case OpsCompared():
                self._case(event.attribution.case_id).compare_ops(event)
            case VerdictReached():
                self._case(event.case_id).judge(event)
            case RunFinished():
                self._time(None)
                self.end = event
                if event.outcome == _NOTHING_COMPARED:
                    for case in self.cases.values():
                        case.end_without_comparison()
            case _:
                pass

    def _case(self, case_id: str) -> WatchedCase:
        """The case; one that the run's start did not name is none of its rows, and one that came before it is."""
        if case_id not in self.cases:
            case = WatchedCase(case_id, is_gating=True)
            if self.start is not None:
                return case
            self.cases[case_id] = case
        return self.cases[case_id]

    def _stage_of(self, block: int) -> Stage:
        return self._stage_of_block.get(block, self.stage)

    def _add_slice(self, timed: SliceTimed) -> None:
        self._time(timed.case_id)
        if not timed.warmup:
            self._timed_slices += 1
            self._case(timed.case_id).add_slice(timed, self._stage_of(timed.block))

    def _time(self, case_id: str | None) -> None:
        """Another case is timed from here on, or none."""
        if case_id == self._timed:
            return
        for changed in (self._timed, case_id):
            if changed in self.cases:
                self.cases[changed].touch()
        self._timed, self._timed_slices = case_id, 0

    def _begin_block(self, event: BlockStarted) -> None:
        self._time(None)
        self.block, self.is_block_open = event.block, True
        self._stage_of_block[event.block] = self.stage
        self._host.begin_block()

    def _finish_block(self, event: BlockFinished) -> None:
        self._time(None)
        self.block, self.is_block_open = event.block, False
        self.blocks_finished += 1
        self.slowest_block_s = max(self.slowest_block_s, event.duration_s)
        stage = self._stage_of(event.block)
        for case in self.cases.values():
            case.finish_block(event.block, stage)
        if self._host.finish_block(event, stage):  # then all effects are others
            for case in self.cases.values():
                case.estimate_anew()

    def view(
        self, *, state: RunState, now_wall: float, rounds_planned: int | None, problems: tuple[str, ...]
    ) -> RunView:
        """What is known, as one value; parts that did not change are the same objects as before.

        Args:
            state: What is to be expected.
            now_wall: The run's wall clock, seconds since the epoch.
            rounds_planned: Rounds of a run with one arm, where they are known.
            problems: What is wrong with the recording.
        """
        start, end = self.start, self.end
        if state is not RunState.MEASURING:
            self._time(None)  # of a run that died nothing is timed, whatever it said last
        return RunView(
            run_id=start.run_id if start else None,
            state=state,
            mode=start.mode if start else "",
            suite=printable(start.suite) if start else "",
            command=start.command if start else (),
            machine_id=start.machine_id if start else None,
            started_at=self.started_at,
            arms=tuple(_arm_view(self.arms[arm]) for arm in Arm if arm in self.arms),
            is_identical=self._identical,
            progress=self._progress(state, now_wall, rounds_planned),
            cases=self._case_rows(),
            outcome=end.outcome if end else None,
            exit_code=end.exit_code if end else None,
            reasons=end.reasons if end else (),
            notes=tuple(self._notes),
            problems=problems,
            log=self._log_lines(),
            steal_ratio=self._host.steal_ratio,
            canary_ratio=self._host.canary_ratio,
        )

    def _case_rows(self) -> tuple[CaseView, ...]:
        voided = self._host.voided
        rows = tuple(case.view(is_timed=case.case_id == self._timed, voided=voided) for case in self.cases.values())
        if len(rows) != len(self._rows) or any(a is not b for a, b in zip(rows, self._rows, strict=True)):
            self._rows = rows
        return self._rows

    def _log_lines(self) -> tuple[LogLine, ...]:
        if self._lines is None:
            self._lines = tuple(self._log)
        return self._lines

    def _progress(self, state: RunState, now_wall: float, rounds_planned: int | None) -> Progress | None:
        if self._first is None or self.last is None:
            return None
        is_running = state in (RunState.PREPARING, RunState.MEASURING)
        elapsed_s = max(0.0, self.last.t_mono - self._first.t_mono)
        if is_running:
            elapsed_s += max(0.0, now_wall - self.last.t_wall)
        elapsed_s = _whole(elapsed_s)
        budget_s = self.start.budget_s if self.start else 0.0
        planned = rounds_planned if self._planned is None and self.stage is Stage.MAIN else self._planned
        return Progress(
            stage=self.stage,
            block=self.block,
            blocks_finished=self.blocks_finished,
            blocks_planned=None if planned is None or not self.blocks_finished else max(planned, self.blocks_finished),
            case_id=self._timed,
            slice_index=self._timed_slices if self._timed else None,
            elapsed_s=elapsed_s,
            budget_s=budget_s,
            left_s=max(0.0, budget_s - elapsed_s) if is_running else None,
        )


def _arm_view(ready: ArmReady) -> ArmView:
    return ArmView(
        arm=ready.arm,
        text=printable(ready.text),
        python=ready.python,
        torch=ready.torch,
        source_id=ready.source_id,
        commit=ready.commit,
    )


def _whole(value_s: float) -> float:
    """Full seconds: a view that differs in less is not worth a repaint."""
    return float(round(value_s)) if math.isfinite(value_s) else 0.0
