"""`bisect`: the first commit that is slower than a good one; git chooses the commits, paired gates answer for them.

The answer for a commit is the kept one where there is one, else that of a gate, which is then kept.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfguard import __version__
from perfguard.codec import to_json
from perfguard.config import Config
from perfguard.errors import ArmError, ExitCode, InterruptedRunError, MeasurementError
from perfguard.gate.calibrate import current_scope
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.host.probe import probe
from perfguard.records.bisection import (
    BISECTION_SCHEMA,
    Answer,
    Bisection,
    BisectionLog,
    BisectionOutcome,
    BisectionStep,
    CaseEffect,
    Commit,
    MeasuredTree,
)
from perfguard.records.facts import Fact, fact
from perfguard.records.plan import ArmSpec
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.runner.arms import git
from perfguard.runner.arms.git import CommitRange, GitBisect, started_bisect
from perfguard.runner.arms.resolve import parse_arm
from perfguard.runner.session import Request
from perfguard.store.files import load_json, write_text

RunGate = Callable[[Request, ArmSpec, ArmSpec], RunResult]
"""Measures and judges one gate; `compare_arms`, or a fake of it."""

NOT_SLOWER = (Outcome.SAME_CODE, Outcome.UNTOUCHED, Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.ALLOWED)
"""Outcomes of a commit that does not hold the culprit."""

_WITHOUT_EFFECT = frozenset(
    {
        "suite",
        "suites",
        "baselines",
        "stored_equivalence",
        "rounds",
        "spread_s",
        "fail_on",
        "database",
        "project",
        "keep_samples_days",
    }
)
"""Settings that no answer depends on; all others, also those to come, are part of what an answer is kept for."""

_NOT_COMPARABLE = tuple(
    outcome.value
    for outcome in (GateOutcome.FAILED, GateOutcome.INVALID, GateOutcome.NO_BASELINE, GateOutcome.INCOMPARABLE)
)

_EXIT_CODES = {
    BisectionOutcome.FOUND: ExitCode.PASS,
    BisectionOutcome.FAILED: ExitCode.INFRASTRUCTURE,
    BisectionOutcome.INTERRUPTED: ExitCode.INTERRUPTED,
}
"""0 says that one commit is named; all other outcomes are inconclusive."""


def bisect(
    request: Request, span: CommitRange, *, is_fresh: bool = False, run_gate: RunGate = compare_arms
) -> Bisection:
    """Compare the good revision with the bad one, then let git search the commits between them.

    The budget of the request is that of one gate; a fresh bisection believes no answer that an earlier one kept.

    Raises:
        UsageError: The revisions do not span a history.
        HostUnfitError: The host cannot be measured on; the answers before are kept.
        StoreError: Answers cannot be kept, or kept ones not be read.
        PerfguardError: The good revision cannot be compared with the bad one.
    """
    with started_bisect(request.loaded.project, span) as search:
        good, bad, commits = search.good, search.bad, search.suspects()
        gates = _open_gates(request, good, bad, run_gate, is_fresh=is_fresh)
        found = Bisection(
            outcome=BisectionOutcome.INTERRUPTED,
            exit_code=0,
            cases=tuple(case.id for case in request.cases),
            good=good,
            bad=bad,
            commits=len(commits),
            log=str(gates.path),
        )
        request.progress(fact("step.bisecting", good=good.short_id, bad=bad.short_id, commits=len(commits)))
        asked: dict[str, BisectionStep] = {}
        try:
            ends = gates.compare_ends(bad)
            found = replace(found, total=ends.measured, gates=int(not ends.is_reused))
            if ends.measured.answer is Answer.BAD:
                _search(search, _narrowed(gates, ends.measured), commits, asked)
            found = replace(found, outcome=_outcome(ends.measured, search.suspects(), asked, bad))
        except (InterruptedRunError, KeyboardInterrupt):  # inside a gate, or between two
            pass
        found = replace(found, steps=tuple(asked.values()))
        is_slower = found.total is not None and found.total.answer is Answer.BAD
        if found.total is not None and is_slower and found.outcome is not BisectionOutcome.ELSEWHERE:
            within = _equivalence_for(found.total, request.loaded.config)
            found = replace(found, suspects=search.suspects(), good_within_ratio=within)
    if found.outcome is BisectionOutcome.FOUND and found.total is not None:
        (culprit,) = found.suspects
        # The bad revision itself has no step of its own.
        measured = next((step.measured for step in found.steps if step.commit.id == culprit.id), found.total)
        rest = _unexplained(found.total, measured)
        found = replace(found, culprit=culprit, effects=_regressed_cases(measured), unexplained=rest)
    total = found.gates + sum(not step.is_reused for step in found.steps)
    exit_code = _EXIT_CODES.get(found.outcome, ExitCode.INCONCLUSIVE)
    return replace(found, gates=total, exit_code=int(exit_code))


class _Gates(Struct, frozen=True, kw_only=True):
    """Gates of the good revision against any other tree."""

    request: Request
    good: Commit
    run_gate: RunGate
    path: Path  # File that keeps the answers
    log: BisectionLog  # Its content; its answers grow

    def compare_ends(self, bad: Commit) -> BisectionStep:
        """The good revision against the bad one; only an answer is kept, so that anything else is tried again."""
        step = self._known(bad) or self._measured(bad)
        return self._keep(step) if step.measured.answer is not Answer.SKIP else step

    def ask(self, commit: Commit) -> BisectionStep:
        """What a commit between the two is; only an answer that the host prevented is not kept."""
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
        answer, reasons = _answer(result.gate)
        causes = {each.case_id: each.culprits[0].fact for each in result.attributions if each.culprits}
        measured = MeasuredTree(
            tree=commit.tree,
            answer=answer,
            gate=result.verdict,
            reasons=reasons,
            cases=tuple(_effect(verdict, causes) for verdict in (result.gate.verdicts if result.gate else ())),
            run_id=result.run_id,
            duration_s=result.duration_s,
        )
        return BisectionStep(commit=commit, measured=measured, is_reused=False)

    def _keep(self, step: BisectionStep) -> BisectionStep:
        if not step.is_reused:
            self.log.trees[step.measured.tree] = step.measured
            write_text(self.path, to_json(self.log, indent=1) + "\n")
        return step


def _open_gates(request: Request, good: Commit, bad: Commit, run_gate: RunGate, *, is_fresh: bool) -> _Gates:
    """Gates with the answers that were kept for the same trees, cases, machine, software and settings."""
    project = request.loaded.project
    settings = {
        **decisive_settings(request),
        "good": good.tree,
        "bad": bad.tree,
        "budget_s": request.budget_s,
        "project": os.path.relpath(project, git.top_level(project)),
    }
    log = BisectionLog(settings={name: to_json(value) for name, value in settings.items()})
    key = hashlib.sha256(to_json(log).encode()).hexdigest()[:16]
    path = project / ".perfguard" / "bisect" / f"{key}.json"
    if not is_fresh:
        remedy = "begin again with --fresh"
        log = load_json(path, BisectionLog, schema=BISECTION_SCHEMA, if_corrupt=remedy, if_foreign=remedy) or log
    return _Gates(request=request, good=good, run_gate=run_gate, path=path, log=log)


def decisive_settings(request: Request) -> dict[str, object]:
    """What every kept answer depends on beside the code and the budget: cases, machine, software, settings."""
    config = request.loaded.config
    return {
        **{name: getattr(config, name) for name in config.__struct_fields__ if name not in _WITHOUT_EFFECT},
        "cases": tuple(case.id for case in request.cases),
        "scope": current_scope(request),
        "perfguard": __version__,
        "variables": {name: request.inherited.get(name) for name in config.pass_env},
    }


def _narrowed(gates: _Gates, total: MeasuredTree) -> _Gates:
    """Gates of the cases that regressed, with a measure for `unchanged` that fits how much they did."""
    regressed = {effect.case_id for effect in _regressed_cases(total)}
    request = gates.request
    config = replace(request.loaded.config, equivalence=_equivalence_for(total, request.loaded.config))
    cases = tuple(case for case in request.cases if case.id in regressed)
    return replace(gates, request=replace(request, cases=cases, loaded=replace(request.loaded, config=config)))


def _search(search: GitBisect, gates: _Gates, commits: tuple[Commit, ...], asked: dict[str, BisectionStep]) -> None:
    """Answer until no answer could tell more; `asked` has whatever was answered, also after an interruption."""
    progress, by_id = gates.request.progress, {commit.id: commit for commit in commits}
    suspects = search.suspects()
    while any(commit.id not in asked and commit.id != search.bad.id for commit in suspects):
        commit = by_id.pop(search.chosen())  # git chooses none twice
        number, named = len(asked) + 1, {"commit": commit.short_id, "subject": commit.subject}
        progress(fact("step.asking", named, number=number, suspects=len(suspects)))
        step = asked[commit.id] = gates.ask(commit)
        search.tell(commit, step.measured.answer)
        suspects = search.suspects()
        progress(fact("step.answered", commit=commit.short_id, answer=step.measured.answer.value))


def _outcome(
    total: MeasuredTree, suspects: tuple[Commit, ...], asked: Mapping[str, BisectionStep], bad: Commit
) -> BisectionOutcome:
    if total.answer is Answer.GOOD:
        return BisectionOutcome.NO_REGRESSION
    if total.answer is Answer.SKIP:
        return BisectionOutcome.FAILED if total.gate in _NOT_COMPARABLE else BisectionOutcome.INCONCLUSIVE
    if not suspects:  # only where paths leave commits out
        return BisectionOutcome.ELSEWHERE
    last = asked.get(suspects[-1].id)
    is_bad = last.measured.answer is Answer.BAD if last else suspects[-1].id == bad.id
    return BisectionOutcome.FOUND if len(suspects) == 1 and is_bad else BisectionOutcome.UNDECIDED


def _answer(gate: GateResult | None) -> tuple[Answer, tuple[Fact, ...]]:
    if gate is None:
        return Answer.SKIP, (fact("bisect.nothing_judged"),)
    if gate.identical and gate.outcome is GateOutcome.PASS:
        return Answer.GOOD, (fact("bisect.same_files"),)
    if any(verdict.outcome is Outcome.REGRESSED for verdict in gate.verdicts):
        return Answer.BAD, gate.reasons
    is_clear = all(verdict.outcome in NOT_SLOWER for verdict in gate.verdicts)
    return Answer.GOOD if is_clear and gate.outcome is not GateOutcome.HOST_UNSTABLE else Answer.SKIP, gate.reasons


def _effect(verdict: Verdict, causes: Mapping[str, Fact]) -> CaseEffect:
    estimate = verdict.comparison.estimate
    values = (estimate.log_ratio, estimate.interval.lower, estimate.interval.upper) if estimate else (math.nan,) * 3
    log_ratio, lower, upper = (value if math.isfinite(value) else None for value in values)
    return CaseEffect(
        case_id=verdict.case_id,
        outcome=verdict.outcome.value,
        log_ratio=log_ratio,
        lower=lower,
        upper=upper,
        blocks=estimate.blocks if estimate else 0,
        reasons=verdict.reasons,
        cause=causes.get(verdict.case_id),
    )


def _regressed_cases(total: MeasuredTree) -> tuple[CaseEffect, ...]:
    """The cases that are worth a search."""
    return tuple(effect for effect in total.cases if effect.outcome == Outcome.REGRESSED.value)


def _equivalence_for(total: MeasuredTree, config: Config) -> float:
    """Largest effect of a commit that still counts as none: half of the smallest that is searched for.

    So a commit is good only where it is shown to be nearer to the good end than to the bad one, however small or large
    the slowdown is. Effects below the margin count as none; cases that regressed in another signal than time have no
    effect to halve.
    """
    effects = [math.expm1(effect.log_ratio) for effect in _regressed_cases(total) if effect.log_ratio is not None]
    slower = [effect for effect in effects if effect > config.wide_margin]
    return max(min(slower) / 2, config.wide_margin) if slower else config.equivalence


def _unexplained(total: MeasuredTree, culprit: MeasuredTree) -> tuple[Fact, ...]:
    """What the culprit leaves unexplained of each case, where the two effects differ by more than their intervals."""
    found = []
    at_culprit = {effect.case_id: effect for effect in culprit.cases}
    for whole in _regressed_cases(total):
        part = at_culprit.get(whole.case_id)
        if part is None or whole.log_ratio is None or part.log_ratio is None:
            continue
        rest = whole.log_ratio - part.log_ratio
        if abs(rest) > math.hypot(_half_width(whole), _half_width(part)):
            values = {"culprit_log_ratio": part.log_ratio, "total_log_ratio": whole.log_ratio}
            found.append(fact("bisect.unexplained", values, case_id=whole.case_id, slower_later=rest > 0))
    return tuple(found)


def _half_width(effect: CaseEffect) -> float:
    return math.inf if effect.lower is None or effect.upper is None else (effect.upper - effect.lower) / 2
