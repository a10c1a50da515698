"""`bisect`: the first commit that is slower than a good one; git chooses the commits, paired gates answer for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perfguard.errors import ExitCode, InterruptedRunError
from perfguard.gate.bisect.answers import equivalence_for, regressed_cases, unexplained
from perfguard.gate.bisect.gates import Gates, RunGate, open_gates
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.records.bisection import Answer, Bisection, BisectionOutcome, BisectionStep, Commit, MeasuredTree
from perfguard.records.facts import fact
from perfguard.records.verdict import GateOutcome
from perfguard.runner.arms.git_bisect import GitBisect, Span, started_bisect
from perfguard.runner.session import Request

_NOT_COMPARABLE = (GateOutcome.FAILED.value, GateOutcome.NO_BASELINE.value, GateOutcome.INCOMPARABLE.value)

_EXIT_CODES = {
    BisectionOutcome.FOUND: ExitCode.PASS,
    BisectionOutcome.FAILED: ExitCode.INFRASTRUCTURE,
    BisectionOutcome.INTERRUPTED: ExitCode.INTERRUPTED,
}
"""0 says that one commit is named; all other outcomes are inconclusive."""


def bisect(request: Request, span: Span, *, is_fresh: bool = False, run_gate: RunGate = compare_arms) -> Bisection:
    """Compare the good revision with the bad one, then let git search the commits between them.

    Args:
        request: Cases, and the budget of one gate.
        span: Where to look.
        is_fresh: Believe no answer that an earlier bisection kept.
        run_gate: Runs one gate.

    Raises:
        UsageError: The revisions do not span a history.
        HostUnfitError: The host cannot be measured on; the answers before are kept.
        StoreError: Answers cannot be kept, or kept ones not be read.
        PerfguardError: The good revision cannot be compared with the bad one.
    """
    with started_bisect(request.loaded.project, span) as search:
        good, bad, commits = search.good, search.bad, search.suspects()
        gates = open_gates(request, good, bad, run_gate, is_fresh=is_fresh)
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
        if (
            found.total is not None
            and found.total.answer is Answer.BAD
            and found.outcome is not BisectionOutcome.ELSEWHERE
        ):
            within = equivalence_for(found.total, request.loaded.config)
            found = replace(found, suspects=search.suspects(), good_within_ratio=within)
    return _concluded(found)


def _narrowed(gates: Gates, total: MeasuredTree) -> Gates:
    """Gates of the cases that regressed, with a measure for `unchanged` that fits how much they did."""
    regressed = {effect.case_id for effect in regressed_cases(total)}
    request = gates.request
    config = replace(request.loaded.config, equivalence=equivalence_for(total, request.loaded.config))
    cases = tuple(case for case in request.cases if case.id in regressed)
    return replace(gates, request=replace(request, cases=cases, loaded=replace(request.loaded, config=config)))


def _search(search: GitBisect, gates: Gates, commits: tuple[Commit, ...], asked: dict[str, BisectionStep]) -> None:
    """Answer until no answer could tell more; `asked` has whatever was answered, also after an interruption."""
    progress, by_id = gates.request.progress, {commit.id: commit for commit in commits}
    suspects = search.suspects()
    while any(commit.id not in asked and commit.id != search.bad.id for commit in suspects):
        commit = by_id.pop(search.chosen())  # git chooses none twice
        progress(
            fact(
                "step.asking",
                number=len(asked) + 1,
                commit=commit.short_id,
                subject=commit.subject,
                suspects=len(suspects),
            )
        )
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


def _concluded(found: Bisection) -> Bisection:
    if found.outcome is BisectionOutcome.FOUND and found.total is not None:
        (culprit,) = found.suspects
        # The bad revision itself has no step of its own.
        measured = next((step.measured for step in found.steps if step.commit.id == culprit.id), found.total)
        effects, rest = regressed_cases(measured), unexplained(found.total, measured)
        found = replace(found, culprit=culprit, effects=effects, unexplained=rest)
    gates = found.gates + sum(not step.is_reused for step in found.steps)
    exit_code = _EXIT_CODES.get(found.outcome, ExitCode.INCONCLUSIVE)
    return replace(found, gates=gates, exit_code=int(exit_code))
