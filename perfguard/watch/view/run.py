"""What a screen shows of a run, computed from its data; only what has changed is made again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perfguard.errors import MeasurementError
from perfguard.records.case_names import short_names
from perfguard.records.events import (
    ArmReady,
    ArmsCompared,
    CaseFinished,
    ControlTimed,
    Event,
    InterimAnalysis,
    Noted,
    RunFinished,
    SampleTimed,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import Fact, Severity
from perfguard.records.run import Arm, CaseFailed, Stage
from perfguard.records.run_data import RunData
from perfguard.records.verdict import GateOutcome, Outcome, Policy
from perfguard.units import printable
from perfguard.watch.sources.line_reader import SeenEvent
from perfguard.watch.view.cases import WatchedCase
from perfguard.watch.view.run_view import ArmView, CaseSeries, CaseView, Level, LogLine, Progress, RunState, RunView

MAX_LOG_LINES = 2000
"""The latest ones are kept; all of them are in the recording."""
MAX_NOTES = 500
_MAX_VOID_FRACTION = Policy().max_void_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    t_wall: float
    t_mono: float


class WatchedRun:
    """A run's data with the times of its events and its log; `view` says what they come to."""

    def __init__(self, listen: Callable[[LogLine], None] | None = None) -> None:
        """Know nothing yet.

        Args:
            listen: Hears every line of the log, of which only the latest ones are kept.
        """
        self.data = RunData(keeps_signals=False)
        self.last: _Moment | None = None
        self._listen = listen
        self._first: _Moment | None = None
        self._cases: dict[str, WatchedCase] = {}
        self._voided: tuple[int, frozenset[int]] = (0, frozenset())
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._rows: tuple[CaseView, ...] = ()
        self._lines: tuple[LogLine, ...] | None = ()

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
        self._lines = None
        if self._listen is not None:
            self._listen(line)

    def series(self, case_id: str) -> CaseSeries:
        """The curves of one case; empty ones where it is unknown."""
        return self._case(case_id).series(self._voided[1])

    def view(
        self, *, state: RunState, now_wall: float, rounds_planned: int | None, problems: tuple[Fact, ...]
    ) -> RunView:
        """What is known, as one value; parts that did not change are the same objects as before.

        Args:
            state: What is to be expected.
            now_wall: The run's wall clock, seconds since the epoch.
            rounds_planned: Rounds of a run with one arm, where they are known.
            problems: What is wrong with the recording.
        """
        data, start, end = self.data, self.data.start, self.data.end
        # Of a run that died nothing is timed, whatever it said last.
        timing = data.timing if state is RunState.MEASURING else None
        return RunView(
            run_id=start.run_id if start else None,
            state=state,
            mode=start.mode if start else "",
            suite=printable(start.suite) if start else "",
            command=start.command if start else (),
            machine_id=start.machine_id if start else None,
            started_at=self._first.t_wall if self._first else None,
            arms=tuple(_arm_view(data.arms[arm]) for arm in Arm if arm in data.arms),
            is_identical=data.is_identical,
            progress=self._progress(state, now_wall, rounds_planned, timing),
            cases=self._case_rows(timing),
            outcome=end.outcome if end else None,
            exit_code=end.exit_code if end else None,
            reasons=end.reasons if end else (),
            notes=tuple(note.fact for note in data.notes[-MAX_NOTES:]),
            problems=problems,
            log=self._log_lines(),
            steal_ratio=data.steal_ratio,
            control_ratio=data.control_ratio,
        )

    def _case(self, case_id: str) -> WatchedCase:
        case = self._cases.get(case_id)
        if case is None:
            case = self._cases[case_id] = WatchedCase(case_id, self.data)
        return case

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
            from perfguard.stats.voiding import void_blocks

            voided: set[int] = set()
            for stage in Stage:
                try:
                    voided |= void_blocks(self.data.conditions(stage), _MAX_VOID_FRACTION).blocks
                except MeasurementError:  # a control workload that is no time: the gate will say so
                    continue
            self._voided = (self.data.blocks_finished, frozenset(voided))
        return self._voided[1]

    def _log_lines(self) -> tuple[LogLine, ...]:
        if self._lines is None:
            self._lines = tuple(self._log)
        return self._lines

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
        elapsed_s = _whole(elapsed_s)
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


_ERRORS = {Outcome.REGRESSED.value, Outcome.FAILED.value, GateOutcome.REGRESSED.value, GateOutcome.FAILED.value}
_WARNINGS = {
    *(Outcome.DIFFERENT.value, Outcome.INCOMPARABLE.value, Outcome.NO_BASELINE.value, Outcome.INCONCLUSIVE.value),
    *(GateOutcome.HOST_UNSTABLE.value, "interrupted"),
}


def level_of(event: Event) -> Level | None:
    """How grave an event is; None for what comes many times a second and for what its neighbours say, too."""
    match event:
        case SampleTimed() | ControlTimed() | CaseFinished() | ArmsCompared(identical=False) | StepsCounted(changes=()):
            return None
        case InterimAnalysis():
            return _worst(event.decided.values()) if event.decided or event.final else None
        case CaseFailed(skipped=False):
            return "error"
        case StepsCounted() | Noted():
            return "info" if isinstance(event, Noted) and event.fact.severity is Severity.INFO else "warning"
        case VerdictReached() | RunFinished():
            return _worst([event.outcome])
        case _:
            return "info"


def _worst(outcomes: Iterable[str]) -> Level:
    found = set(outcomes)
    if found & _ERRORS:
        return "error"
    return "warning" if found & _WARNINGS else "info"
