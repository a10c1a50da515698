"""A bisection as people read it: the steps, then the commit, or why none can be named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfguard.records.bisection import (
    Answer,
    Bisection,
    BisectionOutcome,
    BisectionStep,
    CaseEffect,
    Commit,
    MeasuredTree,
)
from perfguard.records.case_names import short_names
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.culprits import place_of
from perfguard.report.escaping import escape
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import texts
from perfguard.units import format_count, format_duration, format_effect, format_ratio

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Answer.GOOD: "green", Answer.BAD: "bold red", Answer.SKIP: "yellow"}
_SHOWN_SUSPECTS = 20
_NOT_SLOWER = (
    Outcome.SAME_CODE.value,
    Outcome.UNTOUCHED.value,
    Outcome.UNCHANGED.value,
    Outcome.IMPROVED.value,
    Outcome.ALLOWED.value,
)


def _effect(effect: CaseEffect, names: Mapping[str, str]) -> str:
    """`tiny.sum +99.8 % [+98.1 %, +101.5 %]`, or the outcome where nothing was estimated."""
    said = effect.outcome if effect.log_ratio is None else format_effect(effect.log_ratio)
    if None not in (effect.log_ratio, effect.lower, effect.upper):
        said += f" [{format_effect(effect.lower)}, {format_effect(effect.upper)}]"
    return f"{names.get(effect.case_id, effect.case_id)} {said}"


def _effects(effects: Sequence[CaseEffect], names: Mapping[str, str]) -> str:
    return ", ".join(_effect(effect, names) for effect in effects)


def render_bisection(found: Bisection, *, width: int) -> list[RenderableType]:
    """What to print, in order."""
    del width  # everything wraps by itself
    return [part for style, line in (*_details(found), *_conclusion(found)) for part in texts(line, style=style)]


def render_bisection_markdown(found: Bisection) -> str:
    """The same for a comment or a job summary, the conclusion first."""
    lines = [f"- {escape(line.strip())}" for _, line in (*_conclusion(found)[1:], *_details(found))]
    return "\n".join([f"## perfguard bisect: {found.outcome.value}", "", escape(_reason(found)), "", *lines])


def _details(found: Bisection) -> list[tuple[str, str]]:
    """What was compared, then each step; with styles."""
    names = short_names(found.cases)
    lines = [
        f"good       {_commit_line(found.good)}",
        f"bad        {_commit_line(found.bad)}",
        f"commits    {found.commits}, {format_count(found.gates, 'gate')} measured now",
    ]
    if found.total is not None:
        lines.append(f"total      {_effects(found.total.cases, names) or describe_all(found.total.reasons)}")
    if found.good_within_ratio is not None:
        within = format_ratio(found.good_within_ratio)
        lines.append(
            f"good       is what is shown to be slower by less than {within}, nearer to the good end than the other; "
            "bad what is red; the rest is skipped"
        )
    if found.log is not None:
        lines.append(f"kept in    {found.log}")
    return [*(("dim", line) for line in lines), *(_step_line(step, names) for step in found.steps)]


def _step_line(step: BisectionStep, names: Mapping[str, str]) -> tuple[str, str]:
    answer = step.measured.answer
    how = "known" if step.is_reused else format_duration(step.measured.duration_s)
    return _STYLES[answer], f"{answer.value:<5} {_commit_line(step.commit)} ({how}): {finding_of(step.measured, names)}"


def finding_of(measured: MeasuredTree, names: Mapping[str, str]) -> str:
    """The effects, or why there is no answer."""
    if measured.answer is not Answer.SKIP:
        return _effects(measured.cases, names) or describe_all(measured.reasons)
    is_host = measured.gate == GateOutcome.HOST_UNSTABLE.value
    unclear = [case for case in measured.cases if case.outcome not in _NOT_SLOWER and not is_host]
    return "; ".join(
        [f"{names.get(case.case_id, case.case_id)} {case.outcome}: {describe_all(case.reasons)}" for case in unclear]
        or [describe_all(measured.reasons)]
    )


def _reason(found: Bisection) -> str:
    """How the bisection ended, in one line."""
    good, bad = found.good.short_id, found.bad.short_id
    total = describe_all(found.total.reasons) if found.total else ""
    culprit = found.culprit
    if culprit is not None:
        named = f"{culprit.short_id} is the first bad commit: {culprit.subject}"
        written = f"{culprit.author}, {culprit.authored_at[:10]}"
        return f"{named} ({written}); {_effects(found.effects, short_names(found.cases))} against {good}"
    skipped = sum(step.measured.answer is Answer.SKIP for step in found.steps)
    left = f"the first bad one is one of {len(found.suspects)}"
    if len(found.suspects) == 1:
        left = f"only {found.suspects[0].short_id} is left, and it may be innocent"
    return {
        BisectionOutcome.ELSEWHERE: f"{bad} is slower than {good}, but the last commit that touches the paths is not; "
        "search without --path, or with other paths",
        BisectionOutcome.NO_REGRESSION: f"{bad} is not slower than {good}: {total}",
        BisectionOutcome.INCONCLUSIVE: f"cannot tell whether {bad} is slower than {good}: {total}",
        BisectionOutcome.FAILED: f"{bad} cannot be compared with {good}: {total}",
        BisectionOutcome.UNDECIDED: f"{format_count(skipped, 'commit')} skipped, so {left}; a larger --budget, or "
        "--fresh, measures them again",
        BisectionOutcome.INTERRUPTED: "answers are kept; the same command continues",
    }.get(found.outcome, "")


def _effect_lines(effect: CaseEffect, names: Mapping[str, str]) -> list[str]:
    """The effect of the commit on a case, and the op and the line that cause it."""
    lines = [f"    effect   {_effect(effect, names)}"]
    if effect.cause is not None:
        place = place_of(effect.cause)
        lines.append(f"    cause    {describe(effect.cause)}{f' ({place})' if place else ''}")
    return lines


def _commit_line(commit: Commit) -> str:
    return f"{commit.short_id} {commit.authored_at[:10]} {commit.subject}"


def _conclusion(found: Bisection) -> list[tuple[str, str]]:
    """How it ended, then the culprit, or the commits one of which it is; the middle of a long list is left out."""
    culprit = found.culprit
    if culprit is not None:
        lines = [
            f"    commit   {culprit.id}",
            f"    author   {culprit.author}",
            f"    date     {culprit.authored_at}",
            f"    subject  {culprit.subject}",
            *(line for effect in found.effects for line in _effect_lines(effect, short_names(found.cases))),
            *(f"    note     {describe(unexplained)}" for unexplained in found.unexplained),
        ]
    else:
        lines = [f"    {_commit_line(commit)}" for commit in found.suspects]
        if len(lines) > _SHOWN_SUSPECTS:
            half = _SHOWN_SUSPECTS // 2
            lines = [*lines[:half], f"    … {len(lines) - 2 * half} more", *lines[-half:]]
        lines = ["the first bad commit is one of:", *lines] if len(lines) > 1 else []
    style = "bold" if culprit is not None else "bold yellow"
    return [(style, f"{found.outcome.value}: {_reason(found)}"), *(("", line) for line in lines)]
