"""What a commit of a bisection is: the kept answer where there is one, else that of a gate, which is then kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from perfguard import __version__
from perfguard.codec import to_json
from perfguard.errors import ArmError, ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.bisect.answers import measured_tree
from perfguard.gate.calibrate import current_scope
from perfguard.host.probe import probe
from perfguard.records.bisection import BISECTION_SCHEMA, Answer, BisectionLog, BisectionStep, Commit, MeasuredTree
from perfguard.records.facts import fact
from perfguard.records.plan import ArmSpec
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome
from perfguard.runner.arms import git
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.store.files import load_json, write_text

RunGate = Callable[[Request, ArmSpec, ArmSpec], RunResult]
"""Measures and judges one gate; `compare_arms`, or a fake of it."""

_WITHOUT_EFFECT = frozenset({"suite", "suites", "baselines", "stored_equivalence", "rounds", "spread_s", "fail_on"})
"""Settings that no answer depends on; all others, also those to come, are part of what an answer is kept for."""


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
    """Its content; its answers grow."""

    def compare_ends(self, bad: Commit) -> BisectionStep:
        """The good revision against the bad one; only an answer is kept, so that anything else is tried again.

        Raises:
            InterruptedRunError: The user ended it.
            PerfguardError: The two cannot be compared.
        """
        step = self._known(bad) or self._measured(bad)
        return self._keep(step) if step.measured.answer is not Answer.SKIP else step

    def ask(self, commit: Commit) -> BisectionStep:
        """What a commit between the two is; only an answer that the host prevented is not kept.

        Raises:
            InterruptedRunError: The user ended it.
            HostUnfitError: The host cannot be measured on.
        """
        try:
            step = self._known(commit) or self._measured(commit)
        except (ArmError, MeasurementError) as error:  # both ends could be measured: it is the commit's own fault
            refused = fact("bisect.not_measurable", error=str(error).splitlines()[0])
            tree = MeasuredTree(tree=commit.tree, answer=Answer.SKIP, gate="error", reasons=(refused,))
            step = BisectionStep(commit=commit, measured=tree, is_reused=False)
        return self._keep(step) if step.measured.gate != GateOutcome.HOST_UNSTABLE.value else step

    def _known(self, commit: Commit) -> BisectionStep | None:
        known = self.log.trees.get(commit.tree)
        if commit.tree == self.good.tree:
            same = (fact("bisect.same_tree"),)
            known = MeasuredTree(tree=commit.tree, answer=Answer.GOOD, gate=GateOutcome.PASS.value, reasons=same)
        return BisectionStep(commit=commit, measured=known, is_reused=True) if known else None

    def _measured(self, commit: Commit) -> BisectionStep:
        request = replace(self.request, fingerprint=probe())  # each gate is a run of its own
        result = self.run_gate(request, parse_arm(f"git:{self.good.id}"), parse_arm(f"git:{commit.id}"))
        if result.exit_code == ExitCode.INTERRUPTED:
            raise InterruptedRunError(f"the gate of {commit.short_id} was interrupted")
        return BisectionStep(commit=commit, measured=measured_tree(commit.tree, result), is_reused=False)

    def _keep(self, step: BisectionStep) -> BisectionStep:
        if not step.is_reused:
            self.log.trees[step.measured.tree] = step.measured
            write_text(self.path, to_json(self.log, indent=1) + "\n")
        return step


def open_gates(request: Request, good: Commit, bad: Commit, run_gate: RunGate, *, is_fresh: bool) -> Gates:
    """Gates with the answers that an earlier bisection kept for the same trees, cases, machine, software and settings.

    Raises:
        StoreError: Kept answers cannot be read.
    """
    config, project = request.loaded.config, request.loaded.project
    settings = {
        **{entry.name: getattr(config, entry.name) for entry in fields(config) if entry.name not in _WITHOUT_EFFECT},
        "good": good.tree,
        "bad": bad.tree,
        "cases": tuple(case.id for case in request.cases),
        "scope": current_scope(request),
        "budget_s": request.budget_s,
        "perfguard": __version__,
        "project": os.path.relpath(project, git.top_level(project)),
        "variables": {name: request.inherited.get(name) for name in config.pass_env},
    }
    log = BisectionLog(settings={name: to_json(value) for name, value in settings.items()})
    key = hashlib.sha256(to_json(log).encode()).hexdigest()[:16]
    path = project / ".perfguard" / "bisect" / f"{key}.json"
    if not is_fresh:
        remedy = "begin again with --fresh"
        log = load_json(path, BisectionLog, schema=BISECTION_SCHEMA, if_corrupt=remedy, if_foreign=remedy) or log
    return Gates(request=request, good=good, run_gate=run_gate, path=path, log=log)
