"""What all screens share: the run as it is painted, the selected case, and how it is looked at. No textual."""

from __future__ import annotations

import shlex

from msgspec.structs import replace

from perfguard.records.run import Arm
from perfguard.tui.drawing.verdicts import is_worth_a_look
from perfguard.tui.launch import TuiOptions
from perfguard.watch.view.run_view import CaseSeries, CaseView, RunState, RunView
from perfguard.watch.view.watching import RunWatch


class AppState:
    """The state of the application that does not belong to one screen."""

    def __init__(self, watch: RunWatch, options: TuiOptions) -> None:
        self.watch = watch
        self.options = options
        self.view = RunView(run_id=None, state=RunState.WAITING)
        self.selected: str | None = None
        self.is_swapped = False
        self._is_chosen = False

    def show(self, view: RunView) -> None:
        """Show a newer view; the first red case is selected when the run has ended, unless somebody chose another."""
        has_ended = view.state is RunState.FINISHED and self.view.state is not RunState.FINISHED
        self.view = view
        if has_ended and not self._is_chosen:
            red = next((case for case in view.cases if case.is_gating and is_worth_a_look(case)), None)
            self.selected = red.case_id if red is not None else None

    def select(self, case_id: str, *, is_chosen: bool) -> None:
        """Select a case; `is_chosen` where a person did, and not the table by itself."""
        self.selected = case_id
        self._is_chosen |= is_chosen

    @property
    def cases(self) -> tuple[CaseView, ...]:
        """The cases as they are shown."""
        return tuple(map(swapped_case, self.view.cases)) if self.is_swapped else self.view.cases

    @property
    def case(self) -> CaseView | None:
        """The selected case; the first one where none was selected."""
        cases = self.cases
        return next((case for case in cases if case.case_id == self.selected), cases[0] if cases else None)

    def series(self, case: CaseView) -> CaseSeries:
        """The curves of a case as they are shown."""
        series = self.watch.series(case.case_id)
        return swapped_series(series) if self.is_swapped else series

    def select_next(self, step: int) -> str | None:
        """Select another case in the order of the suite, round the end."""
        ids = [case.case_id for case in self.view.cases]
        if not ids:
            return None
        at = ids.index(self.selected) if self.selected in ids else 0
        self.select(ids[(at + step) % len(ids)], is_chosen=True)
        return self.selected


def command_for(screen: str, session: AppState) -> str:
    """The command line that says what a screen shows, to be pasted into a shell."""
    name = session.options.run_name or session.view.run_id
    run = [name] if name else []
    words = {
        "live": ["watch", *run, "--plain"],
        "compare": ["show", *run],
        "ops": ["show", *run],
        "history": ["tui", *run],
        "host": ["doctor"],
        "log": ["watch", *run, "--plain"],
        "fleet": ["fleet", "status"],
        "tune": ["tui", *run],
    }[screen]
    arms = {arm.arm: arm.text for arm in session.view.arms}
    if screen == "ops" and session.case is not None and {Arm.BASELINE, Arm.CANDIDATE} <= arms.keys():
        sides = ["--baseline", arms[Arm.BASELINE], "--candidate", arms[Arm.CANDIDATE]]
        words = ["compare", *sides, "--case", session.case.case_id, "--ops"]
    return shlex.join(["perfguard", *words])


def words_to_start(kind: str, session: AppState) -> list[str]:
    """What a dialog proposes to start: the run's own command again (`run`), or to store its `baseline` anew."""
    has_cases = any(word.startswith(("-c", "--case")) for word in session.view.command)
    suite = ["--suite", session.view.suite] if session.view.suite and not has_cases else []
    if kind == "baseline":
        return ["baseline", "update", *suite]
    command = list(session.view.command)
    # A recording holds the arguments with or without the program's own name in front.
    if command and not command[0].startswith("-") and command[0].rpartition("/")[2].startswith("perfguard"):
        command = command[1:]
    return command or ["gate", *suite]


def swapped_case(case: CaseView) -> CaseView:
    """A case with its effect inverted; its verdict stays what it is, since it was judged the right way round."""
    return replace(
        case,
        baseline_s=case.candidate_s,
        candidate_s=case.baseline_s,
        log_ratio=-case.log_ratio if case.log_ratio is not None else None,
        lower=-case.upper if case.upper is not None else None,
        upper=-case.lower if case.lower is not None else None,
    )


def swapped_series(series: CaseSeries) -> CaseSeries:
    """The curves of `swapped_case`."""
    return replace(
        series,
        baseline_s=series.candidate_s,
        candidate_s=series.baseline_s,
        block_log_ratios=tuple(-ratio for ratio in series.block_log_ratios),
    )
