"""Answers for the commits of a bisection: the kept one where there is one, else that of a gate, which is then kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

from perfguard import __version__
from perfguard.codec import to_json
from perfguard.errors import ArmError, ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.bisect.answers import (
    equivalence_for,
    is_worth_keeping,
    measured_tree,
    regressed_cases,
    unmeasurable_tree,
)
from perfguard.gate.bisect.history import History
from perfguard.gate.calibrate import current_scope
from perfguard.records.bisection import Answer, BisectionLog, BisectionStep, Commit, MeasuredTree
from perfguard.records.plan import ArmSpec
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome
from perfguard.runner.arms import git
from perfguard.runner.arms.arm_spec import parse_arm
from perfguard.runner.session import Request
from perfguard.store.bisections import bisection_file, load_answers, save_log

_WITHOUT_EFFECT = frozenset({"suite", "suites", "baselines", "stored_equivalence", "rounds", "spread_s", "fail_on"})
"""Settings that no answer depends on; all others, also those to come, are part of what an answer is kept for."""


class RunGate(Protocol):
    """Measures and judges one gate; `compare_arms`, or a fake of it."""

    def __call__(self, request: Request, baseline: ArmSpec, candidate: ArmSpec) -> RunResult:
        """The gate's result."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The good revision against any other tree."""

    request: Request
    """Cases, and the budget of one gate."""
    good: Commit
    """The good revision."""
    run_gate: RunGate
    """Runs one gate."""
    path: Path
    """File that keeps the answers."""
    log: BisectionLog
    """What they are kept for."""
    answers: dict[str, MeasuredTree]
    """By tree; grows."""

    def compare_ends(self, bad: Commit) -> BisectionStep:
        """The good revision against the bad one; only an answer is kept, so that anything else can be tried again.

        Raises:
            InterruptedRunError: The user ended it.
            PerfguardError: The two cannot be compared.
        """
        known = self._known(bad.tree)
        total = known or self._measure(bad)
        if total.answer is not Answer.SKIP:
            self._keep(total)
        return BisectionStep(commit=bad, measured=total, is_reused=known is not None)

    def narrowed(self, total: MeasuredTree) -> Gates:
        """The same for the cases that regressed, with a measure for `unchanged` that fits how much they did."""
        regressed = {effect.case_id for effect in regressed_cases(total)}
        loaded = self.request.loaded
        config = replace(loaded.config, equivalence=equivalence_for(total, loaded.config))
        cases = tuple(case for case in self.request.cases if case.id in regressed)
        return replace(self, request=replace(self.request, cases=cases, loaded=replace(loaded, config=config)))

    def ask(self, commit: Commit) -> BisectionStep:
        """What a commit between the two is.

        Raises:
            InterruptedRunError: The user ended it.
            HostUnfitError: The host cannot be measured on.
        """
        known = self._known(commit.tree)
        if known is not None:
            return BisectionStep(commit=commit, measured=known, is_reused=True)
        try:
            measured = self._measure(commit)
        except (ArmError, MeasurementError) as error:  # both ends could be measured, so this is the commit's own fault
            measured = unmeasurable_tree(commit.tree, error)
        if is_worth_keeping(measured):
            self._keep(measured)
        return BisectionStep(commit=commit, measured=measured, is_reused=False)

    def _known(self, tree: str) -> MeasuredTree | None:
        if tree == self.good.tree:
            reason = "the same tree as the good revision"
            return MeasuredTree(tree=tree, answer=Answer.GOOD, gate=GateOutcome.PASS.value, reason=reason)
        return self.answers.get(tree)

    def _measure(self, commit: Commit) -> MeasuredTree:
        result = self.run_gate(self.request, parse_arm(f"git:{self.good.id}"), parse_arm(f"git:{commit.id}"))
        if result.exit_code == ExitCode.INTERRUPTED:
            raise InterruptedRunError(result.reason)
        return measured_tree(commit.tree, result)

    def _keep(self, measured: MeasuredTree) -> None:
        if measured.run_id is None and measured.answer is Answer.GOOD:
            return  # known from the trees alone
        if self.answers.get(measured.tree) != measured:
            self.answers[measured.tree] = measured
            save_log(self.path, replace(self.log, trees=dict(self.answers)))


def open_gates(request: Request, history: History, run_gate: RunGate, *, is_fresh: bool) -> Gates:
    """Gates with the answers that an earlier bisection kept for the same trees, cases, machine, software and settings.

    Args:
        request: Cases, and the budget of one gate.
        history: What is searched.
        run_gate: Runs one gate.
        is_fresh: Believe no kept answer.

    Raises:
        StoreError: Kept answers cannot be read.
    """
    log = BisectionLog(
        good=history.good.tree,
        bad=history.bad.tree,
        cases=tuple(case.id for case in request.cases),
        scope=current_scope(request.loaded, request.cases),
        settings=_settings(request),
    )
    path = bisection_file(request.loaded.project, log)
    answers = {} if is_fresh else load_answers(path)
    return Gates(request=request, good=history.good, run_gate=run_gate, path=path, log=log, answers=answers)


def _settings(request: Request) -> dict[str, str]:
    config, project = request.loaded.config, request.loaded.project
    found = {entry.name: to_json(getattr(config, entry.name)) for entry in fields(config)}
    kept = {name: value for name, value in found.items() if name not in _WITHOUT_EFFECT}
    return {
        **kept,
        "budget_s": to_json(request.budget_s),
        "perfguard": __version__,
        "project": os.path.relpath(project, git.top_level(project)),
        "variables": to_json({name: request.inherited.get(name) for name in config.pass_env}),
    }
