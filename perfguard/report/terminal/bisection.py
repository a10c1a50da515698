"""A bisection as people read it: the steps, then the commit, or why none can be named."""

from __future__ import annotations

from collections.abc import Sequence
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
from perfguard.report.escaping import code, escape
from perfguard.units import format_count, format_duration, format_effect, format_ratio, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Answer.GOOD: "green", Answer.BAD: "bold red", Answer.SKIP: "yellow"}
_SHOWN_SUSPECTS = 20


def format_with_interval(effect: CaseEffect) -> str:
    """`+99.8 % [+98.1 %, +101.5 %]`, or the outcome where nothing was estimated."""
    if effect.log_ratio is None:
        return effect.outcome
    if effect.lower is None or effect.upper is None:
        return format_effect(effect.log_ratio)
    return f"{format_effect(effect.log_ratio)} [{format_effect(effect.lower)}, {format_effect(effect.upper)}]"


def describe_effects(effects: Sequence[CaseEffect]) -> str:
    """`tiny.sum +99.8 % [+98.1 %, +101.5 %]` of each case."""
    return ", ".join(f"{effect.case_id} {format_with_interval(effect)}" for effect in effects)


def render_bisection(found: Bisection, *, width: int) -> list[RenderableType]:
    """What to print, in order."""
    from rich.text import Text

    del width  # everything wraps by itself
    parts: list[RenderableType] = [Text(printable(line), style="dim") for line in _head(found)]
    for step in found.steps:
        style = _STYLES[step.measured.answer]
        parts.append(Text.assemble((f"{step.measured.answer.value:<5}", style), printable(f" {_step_line(step)}")))
    if found.outcome is not BisectionOutcome.FOUND:
        parts.extend(Text(printable(line)) for line in _suspect_lines(found))
    style = "bold" if found.outcome is BisectionOutcome.FOUND else "bold yellow"
    parts.append(Text(printable(f"{found.outcome.value}: {found.reason}"), style=style))
    if found.culprit is not None:
        parts.extend(Text(printable(line)) for line in _culprit_lines(found, found.culprit))
    return parts


def render_bisection_markdown(found: Bisection) -> str:
    """The same for a comment or a job summary."""
    lines = [f"## perfguard bisect: {found.outcome.value}", "", escape(found.reason), ""]
    if found.culprit is not None:
        lines += [f"- {escape(line.strip())}" for line in _culprit_lines(found, found.culprit)]
    elif found.suspects:
        lines += [f"- {escape(line.strip())}" for line in _suspect_lines(found)]
    lines += ["", *(f"- {escape(line)}" for line in _head(found))]
    if found.steps:
        lines += ["", "| commit | date | subject | answer | effect |", "|---|---|---|---|---|"]
        for step in found.steps:
            commit = step.commit
            cells = (
                code(commit.short_id),
                commit.authored_at[:10],
                escape(commit.subject),
                f"**{step.measured.answer.value}**",
                escape(finding_of(step.measured)),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _head(found: Bisection) -> list[str]:
    lines = [
        f"good       {_commit_line(found.good)}",
        f"bad        {_commit_line(found.bad)}",
        f"commits    {found.commits}, {format_count(found.gates, 'gate')} measured now",
    ]
    if found.total is not None:
        lines.append(f"total      {describe_effects(found.total.cases) or found.total.reason}")
    if found.good_within_ratio is not None:
        within = format_ratio(found.good_within_ratio)
        lines.append(
            f"good       is what is shown to be slower by less than {within}, nearer to the good end than the other; "
            "bad what is red; the rest is skipped"
        )
    if found.log is not None:
        lines.append(f"kept in    {found.log}")
    return lines


def _step_line(step: BisectionStep) -> str:
    how = "known" if step.is_reused else format_duration(step.measured.duration_s)
    return f"{_commit_line(step.commit)} ({how}): {finding_of(step.measured)}"


def finding_of(measured: MeasuredTree) -> str:
    """The effects, or why there is no answer."""
    return measured.reason if measured.answer is Answer.SKIP else describe_effects(measured.cases) or measured.reason


def _commit_line(commit: Commit) -> str:
    return f"{commit.short_id} {commit.authored_at[:10]} {commit.subject}"


def _suspect_lines(found: Bisection) -> list[str]:
    """The commits one of which is the first bad one; the newest are known to matter, so long lists lose the middle."""
    if len(found.suspects) <= 1:
        return []
    lines = [f"    {_commit_line(commit)}" for commit in found.suspects]
    if len(lines) > _SHOWN_SUSPECTS:
        half = _SHOWN_SUSPECTS // 2
        lines = [*lines[:half], f"    … {len(lines) - 2 * half} more", *lines[-half:]]
    return ["the first bad commit is one of:", *lines]


def _culprit_lines(found: Bisection, culprit: Commit) -> list[str]:
    return [
        f"    commit   {culprit.id}",
        f"    author   {culprit.author}",
        f"    date     {culprit.authored_at}",
        f"    subject  {culprit.subject}",
        *(f"    effect   {effect.case_id} {format_with_interval(effect)}" for effect in found.effects),
        *(f"    note     {line}" for line in found.unexplained),
    ]
