"""The comment on a pull request, and the summary of a job: verdict, culprit, then as much as there is room for.

GitHub refuses comments of more than 65,536 characters. So a comment has a budget, and sheds detail in the order of
`SHEDDING` until it fits; what regressed, its culprit and how to measure it again stay.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perfguard.records.allowance import LARGEST_RATIO
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.comment.cases import Detail, case_sections, code_of, fold, of, text_of
from perfguard.report.culprits import contradiction, culprit_lines
from perfguard.report.escaping import code_block
from perfguard.report.lines import attribution_of, error_rate_of, name_in, notes_of
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.findings import render_findings_markdown
from perfguard.units import format_count

COMMENT_CHARACTERS = 60_000  # Room for a comment; GitHub's own limit is 65,536
SUMMARY_CHARACTERS = 240_000
"""Room for a job summary: GitHub's limit is 1 MiB, and a character is at most four bytes."""

SHEDDING: tuple[Mapping[str, Any], ...] = (
    {"unchanged": False},
    {"advice": False},
    {"signals": False},
    {"changes": 1},
    {"notes": False},
    {"improved": 10},
    {"rows": 40, "blamed": 20, "improved": 0},
    {"rows": 20, "blamed": 5, "changes": 0},
)
"""What is left out, one after the other."""

_SIGNS = {"pass": "✅", "regressed": "🔺", "failed": "❌", "invalid": "❌", "different": "❌"}
_NAMES = {"torch": "torch", "python": "Python", "stack_id": "software stack", "interpreter": "interpreter"}
_TYPABLE = re.compile(r"[\w.,:=+/@%()\[\] -]{1,300}", re.ASCII)  # And no `*`, which would name other cases
"""Case ids that a command may hold: nothing in them could end the quotes that they stand in."""
_MOST_ACCEPTED = 8  # Commands that accept a case each; of more, a glob is the shorter way
_CUT = "\n\n…and more than a comment has room for.\n"


class CommentContext(Struct, frozen=True, kw_only=True):
    """What a comment says that is not in the result."""

    marker: str  # Tells this comment from others of the same pull request: `gate`
    head_sha: str | None = None  # The pull request's commit that was measured
    reproduce: str | None = None  # Command that measures the same again
    report_url: str | None = None  # Where the whole report is
    accepted_by: str | None = None  # The label that accepts the slowdown, where the pull request has it
    accept_label: str | None = None  # The label that would accept it
    from_fork: bool = False
    """Whether the numbers come from a workflow that the pull request itself could have changed."""


def marker_line(marker: str) -> str:
    """The first line of a comment, by which it is found again."""
    return f"<!-- perfguard:{re.sub(r'[^A-Za-z0-9._/]+', '-', marker)} -->"


def render_comment(result: RunResult, context: CommentContext, *, limit: int = COMMENT_CHARACTERS) -> str:
    """A result as Markdown of at most `limit` characters."""
    detail = Detail()
    for shed in ({}, *SHEDDING):
        detail = replace(detail, **shed)
        text = _render(result, context, detail)
        if len(text) <= limit:
            return text
    return text[: limit - len(_CUT)].rpartition("\n")[0] + _CUT


def _render(result: RunResult, context: CommentContext, detail: Detail) -> str:
    parts = [
        marker_line(context.marker),
        *_headline(result, context),
        *case_sections(result, detail),
        *_environment(result),
        *_advice(result, context, detail),
        *_notes(result, detail),
        *_what_to_do(result, context),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(result: RunResult, context: CommentContext) -> list[str]:
    commit = f" at {context.head_sha[:12]}" if context.head_sha else ""
    sign = _SIGNS.get(result.verdict, "⚠️")
    parts = [f"### {sign} perfguard: {text_of(result.verdict)}{commit}", f"**{text_of(describe_all(result.reasons))}**"]
    red = _red(result)
    if red and (found := attribution_of(red[0], result)) is not None:
        where = f" ({code_of(name_in(result, red[0].case_id))})" if len(red) > 1 else ""
        doubt = contradiction(red[0], found.balance)
        parts += [f"**{text_of(line.headline)}**{where}\n{text_of(line.details)}" for line in culprit_lines(found)]
        parts += [text_of(describe(doubt))] if doubt else []
    parts.append(f"How sure: {_certainty(result)}")
    if context.accepted_by is not None:
        parts.append(f"Accepted by the label {code_of(context.accepted_by)}: the check passes whatever the verdict is.")
    if context.from_fork:
        parts.append(
            "Numbers and texts below come from the fork's own workflow run; a reviewer should see that the change "
            "leaves the workflow alone."
        )
    return parts


def _red(result: RunResult) -> list[Verdict]:
    return of(result.gate.verdicts, Outcome.REGRESSED) if result.gate is not None else []


def _was_not_measured(result: RunResult) -> bool:
    """Whether both arms run the same code, so that no block was measured."""
    return result.gate is not None and result.gate.identical and not result.gate.blocks_total


def _certainty(result: RunResult) -> str:
    """The gate's error rate, and what made a flag red."""
    if result.gate is None:
        return "nothing was compared."
    if _was_not_measured(result):
        return "by git's own hashes; nothing was measured."
    red = [v for v in _red(result) if v.gating is Gating.GATING]
    said = ""
    if red and all(v.confirmation is not None and v.confirmation.confirmed for v in red):
        each = "the regression" if len(red) == 1 else "each regression"
        said = f"{each} came back in an independent run with both arms moved in memory and on disk; "
    return text_of(said + error_rate_of(result))


def _environment(result: RunResult) -> list[str]:
    """What differs between the arms beside their code, and where both ran."""
    baseline, candidate = result.arms.get("baseline"), result.arms.get("candidate")
    where = f"{text_of(result.machine)} ({code_of(result.machine_id)})"
    if baseline is None or candidate is None:
        return [f"Machine: {where}."]
    # Each revision may have a virtual environment of its own; the stack says whether they hold the same.
    known = baseline.stack_id is not None and candidate.stack_id is not None
    rows = [
        (_NAMES[name], getattr(baseline, name), getattr(candidate, name))
        for name in ("torch", "python", "stack_id", *(() if known else ("interpreter",)))
        if getattr(baseline, name) != getattr(candidate, name)
    ]
    if rows:
        lines = ["Environment: **it differs between the arms**", "", "| | baseline | candidate |", "|---|---|---|"]
        lines += [f"| {name} | {' | '.join(code_of(v) if v else '-' for v in values)} |" for name, *values in rows]
        return ["\n".join(lines), f"Machine: {where}."]
    if candidate.python is None:  # nothing was started
        return [f"Machine: {where}."]
    both = f"torch {text_of(candidate.torch)}" if candidate.torch else "no torch"
    return [f"Environment: the same in both arms ({both}, Python {text_of(candidate.python)}), {where}."]


def _advice(result: RunResult, context: CommentContext, detail: Detail) -> list[str]:
    """Findings by case; a bot shows no command to run that a stranger could have written."""
    found = list(result.findings.items())[: detail.rows] if detail.advice else []
    return [
        fold(
            f"Advice on {name_in(result, case_id)}",
            render_findings_markdown(
                [dataclasses.replace(f, command="") for f in findings] if context.from_fork else findings
            ),
        )
        for case_id, findings in found
        if findings
    ]


def _notes(result: RunResult, detail: Detail) -> list[str]:
    notes = [describe(note) for note in notes_of(result) if note != result.error_rate] if detail.notes else []
    lines = "\n".join(f"- {text_of(note)}" for note in notes[: detail.rows])
    return [fold("What else there is to know", lines)] if notes else []


def _what_to_do(result: RunResult, context: CommentContext) -> list[str]:
    red = _red(result)
    worst = next((v for v in red if _TYPABLE.fullmatch(v.case_id)), None)
    commands = []
    if context.reproduce and not _was_not_measured(result):
        commands += ["# measure it again", context.reproduce]
        if worst is not None:
            commands += ["# compare its ops", f"{context.reproduce} --ops -c '{worst.case_id}'"]
    accepting = _acceptance(red)
    heading = " or ".join([*(["measure it again"] if commands else []), *(["accept it"] if accepting else [])])
    commands += accepting
    parts = [fold(heading.capitalize(), code_block(commands, "sh"))] if commands else []
    if red and context.accept_label and context.accepted_by is None:
        parts.append(f"To let it through as it is, set the label {code_of(context.accept_label)}.")
    if context.report_url:
        parts.append(f"[Everything that the run left]({context.report_url}): result, raw samples, traces.")
    return parts


def _acceptance(red: Sequence[Verdict]) -> list[str]:
    """Commands that allow the regressions that fail the gate, the worst first."""
    failing = [v for v in red if v.gating is Gating.GATING and _TYPABLE.fullmatch(v.case_id)]
    failing = [v for v in failing if _ceiling(v) <= 100 * LARGEST_RATIO]
    if not failing:
        return []
    more = len(failing) - _MOST_ACCEPTED
    rest = f"# and {format_count(more, 'case')} more; a glob covers several: perfguard allow 'kernel.*' …"
    return [
        "# accept it: on the base branch, whose allow-list is the one that counts",
        *(
            f"perfguard allow '{verdict.case_id}' --max {_ceiling(verdict)}% --until 30d --reason '…'"
            for verdict in failing[:_MOST_ACCEPTED]
        ),
        *([rest] if more > 0 else []),
    ]


def _ceiling(verdict: Verdict) -> int:
    """Whole per cent that cover the upper end of a regression's interval."""
    estimate = verdict.effect
    if estimate is None or not math.isfinite(estimate.log_ratio):
        return 1
    upper = estimate.interval.upper if math.isfinite(estimate.interval.upper) else estimate.log_ratio
    return max(1, math.ceil(math.expm1(min(upper, 5.0)) * 100))
