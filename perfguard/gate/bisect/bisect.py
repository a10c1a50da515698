"""`bisect`: the first commit that is slower than a good one; every step is a paired gate of the good one against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfguard.errors import ExitCode, InterruptedRunError
from perfguard.gate.bisect.answers import equivalence_for, regressed_cases, unexplained
from perfguard.gate.bisect.bisection import Search
from perfguard.gate.bisect.gates import Gates, RunGate, open_gates
from perfguard.gate.bisect.history import History, Span, read_history
from perfguard.gate.paired.compare_arms import compare_arms
from perfguard.records.bisection import (
    Answer,
    Bisection,
    BisectionOutcome,
    BisectionStep,
    Commit,
    MeasuredTree,
)
from perfguard.records.verdict import GateOutcome
from perfguard.report.terminal.bisection import describe_effects, finding_of
from perfguard.runner.session import Request
from perfguard.units import format_count

_NOT_COMPARABLE = (GateOutcome.FAILED.value, GateOutcome.NO_BASELINE.value, GateOutcome.INCOMPARABLE.value)

_EXIT_CODES = {
    BisectionOutcome.FOUND: ExitCode.PASS,
    BisectionOutcome.UNDECIDED: ExitCode.INCONCLUSIVE,
    BisectionOutcome.ELSEWHERE: ExitCode.INCONCLUSIVE,
    BisectionOutcome.NO_REGRESSION: ExitCode.INCONCLUSIVE,
    BisectionOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    BisectionOutcome.FAILED: ExitCode.INFRASTRUCTURE,
    BisectionOutcome.INTERRUPTED: ExitCode.INTERRUPTED,
}
"""0 says that one commit is named, and nothing else does."""


def bisect(request: Request, span: Span, *, is_fresh: bool = False, run_gate: RunGate = compare_arms) -> Bisection:
    """Compare the good revision with the bad one, then search the commits between them.

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
    history = read_history(request.loaded.project, span)
    gates = open_gates(request, history, run_gate, is_fresh=is_fresh)
    search = Search(history.parents())
    ends: BisectionStep | None = None
    steps: list[BisectionStep] = []
    interrupted = False
    try:
        later = format_count(len(history.commits), "commit")
        request.progress(f"{history.good.short_id} against {history.bad.short_id}, {later} later")
        ends = gates.compare_ends(history.bad)
        if ends.measured.answer is Answer.BAD:
            narrowed = gates.narrowed(ends.measured)
            _search(search, history, narrowed, steps)
            _check_last(history, narrowed, steps)
    except (InterruptedRunError, KeyboardInterrupt):  # inside a gate, or between two
        interrupted = True
    total = ends.measured if ends is not None else None
    outcome = _outcome(total, search, _answer_of_last(history, steps), interrupted=interrupted)
    has_suspects = total is not None and total.answer is Answer.BAD and outcome is not BisectionOutcome.ELSEWHERE
    found = Bisection(
        outcome=outcome,
        reason="",
        exit_code=int(_EXIT_CODES[outcome]),
        cases=tuple(case.id for case in request.cases),
        good=history.good,
        bad=history.bad,
        commits=len(history.commits),
        total=total,
        good_within_ratio=equivalence_for(total, request.loaded.config) if has_suspects and total else None,
        steps=tuple(steps),
        suspects=tuple(history.commits[position] for position in search.suspects()) if has_suspects else (),
        gates=sum(not step.is_reused for step in (*steps, *([ends] if ends else ()))),
        log=str(gates.path),
    )
    if total is not None and outcome is BisectionOutcome.FOUND:
        found = _with_culprit(found, total)
    return replace(found, reason=_reason(found))


def _search(search: Search, history: History, gates: Gates, steps: list[BisectionStep]) -> None:
    """Ask until nothing more can be told; `steps` has whatever was answered, also after an interruption."""
    progress = gates.request.progress
    while (position := search.choose()) is not None:
        commit = history.commits[position]
        progress(
            f"step {len(steps) + 1}, about {search.questions_left() - 1} more: {commit.short_id} {commit.subject} "
            f"({len(search.suspects())} suspects)"
        )
        step = gates.ask(commit)
        steps.append(step)
        search.tell(position, step.measured.answer)
        progress(f"{commit.short_id} is {step.measured.answer.value}: {finding_of(step.measured)}")


def _check_last(history: History, gates: Gates, steps: list[BisectionStep]) -> None:
    """Ask for the last commit that touches the paths, where it was only taken for bad and nothing else was found bad.

    That what slowed the bad revision touches these paths is the user's guess. Unchecked, a wrong guess would name an
    innocent commit.
    """
    last = history.commits[-1]
    if last.tree != history.bad.tree and not any(step.measured.answer is Answer.BAD for step in steps):
        gates.request.progress(f"checking {last.short_id} {last.subject}, the last commit that touches the paths")
        steps.append(gates.ask(last))


def _answer_of_last(history: History, steps: list[BisectionStep]) -> Answer:
    """What the last commit is; bad, as the bad revision, where it was not asked for."""
    last = history.commits[-1].id
    return next((step.measured.answer for step in steps if step.commit.id == last), Answer.BAD)


def _outcome(total: MeasuredTree | None, search: Search, last: Answer, *, interrupted: bool) -> BisectionOutcome:
    if interrupted or total is None:
        return BisectionOutcome.INTERRUPTED
    if total.answer is Answer.GOOD:
        return BisectionOutcome.NO_REGRESSION
    if total.answer is Answer.SKIP:
        return BisectionOutcome.FAILED if total.gate in _NOT_COMPARABLE else BisectionOutcome.INCONCLUSIVE
    if last is Answer.GOOD:
        return BisectionOutcome.ELSEWHERE
    is_found = len(search.suspects()) == 1 and last is Answer.BAD
    return BisectionOutcome.FOUND if is_found else BisectionOutcome.UNDECIDED


def _with_culprit(found: Bisection, total: MeasuredTree) -> Bisection:
    (culprit,) = found.suspects
    # The last commit of the whole history is never asked for: it is the bad revision.
    measured = next((step.measured for step in found.steps if step.commit.id == culprit.id), total)
    return replace(found, culprit=culprit, effects=regressed_cases(measured), unexplained=unexplained(total, measured))


def _reason(found: Bisection) -> str:
    if found.culprit is not None:
        return f"{_named(found.culprit)}; {describe_effects(found.effects)} against {found.good.short_id}"
    good, bad, total = found.good.short_id, found.bad.short_id, found.total.reason if found.total else ""
    skipped = sum(step.measured.answer is Answer.SKIP for step in found.steps)
    return {
        BisectionOutcome.ELSEWHERE: f"{bad} is slower than {good}, but no commit that touches the paths is to blame: "
        "the last of them is not slower; search without --path, or with others",
        BisectionOutcome.NO_REGRESSION: f"{bad} is not slower than {good}: {total}",
        BisectionOutcome.INCONCLUSIVE: f"whether {bad} is slower than {good} cannot be told: {total}",
        BisectionOutcome.FAILED: f"{bad} cannot be compared with {good}: {total}",
        BisectionOutcome.UNDECIDED: f"{format_count(skipped, 'commit')} could not be told good from bad, so "
        f"{_left(found.suspects)}; a larger --budget, or --fresh, measures them again",
        BisectionOutcome.INTERRUPTED: "the answers so far are kept, the same command goes on from there",
    }[found.outcome]


def _left(suspects: Sequence[Commit]) -> str:
    if len(suspects) == 1:
        return f"{suspects[0].short_id} is the only one left that touches the paths, and may be innocent"
    return f"the first bad one is one of {len(suspects)}"


def _named(culprit: Commit) -> str:
    written = f"{culprit.author}, {culprit.authored_at[:10]}"
    return f"{culprit.short_id} is the first bad commit: {culprit.subject} ({written})"
