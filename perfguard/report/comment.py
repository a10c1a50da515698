"""The comment on a pull request, and the summary of a job: verdict, culprit, then as much as there is room for.

GitHub refuses comments of more than 65,536 characters. So a comment has a budget, and sheds detail in the order of
`_SHEDDING` until it fits; what regressed and how to reproduce it goes last.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfguard.model.result import RunResult
from perfguard.model.spec import Gating
from perfguard.model.verdict import Outcome, Verdict
from perfguard.report.escaping import code, escape
from perfguard.report.findings import render_findings_markdown
from perfguard.report.interval_bars import interval_bar, reach_of
from perfguard.report.lines import note_lines, signal_lines
from perfguard.report.terminal import SIGNS, format_interval
from perfguard.units import format_count, format_effect, printable

COMMENT_CHARACTERS = 60_000
"""Room for a comment; GitHub's own limit is 65,536."""
SUMMARY_CHARACTERS = 240_000
"""Room for a job summary: GitHub's limit is 1 MiB, and a character is at most four bytes."""

_LONGEST_TEXT = 700
"""Characters of one sentence; texts of a fork have no length of their own that could be relied on."""
_LONGEST_ID = 300
_RED = (Outcome.REGRESSED,)
_BROKEN = (Outcome.FAILED, Outcome.DIFFERENT)
_OPEN = (Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.NO_BASELINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentContext:
    """What a comment says that is not in the result."""

    marker: str
    """Tells this comment from others of the same pull request: `perf/pr`."""
    reproduce: str | None = None
    """Command that measures the same again."""
    report_url: str | None = None
    """Where the whole report is."""
    accepted_by: str | None = None
    """The label that accepts the slowdown, where the pull request has it."""
    accept_label: str | None = None
    """The label that would accept it."""
    from_fork: bool = False
    """Whether the numbers come from a workflow that the pull request itself could have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Detail:
    """How much is shown."""

    unchanged: bool = True
    advice: bool = True
    signals: bool = True
    notes: bool = True
    changes: int = 5
    improved: int = 200
    rows: int = 200
    blamed: int = 50


_SHEDDING = (
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


def marker_line(marker: str) -> str:
    """The first line of a comment, by which it is found again."""
    return f"<!-- perfguard:{marker.replace('--', '-')} -->"


def render_comment(result: RunResult, context: CommentContext, *, limit: int = COMMENT_CHARACTERS) -> str:
    """A result as Markdown of at most `limit` characters."""
    detail = _Detail()
    for shed in ({}, *_SHEDDING):
        detail = replace(detail, **shed)  # type: ignore[arg-type]
        text = _render(result, context, detail)
        if len(text) <= limit:
            return text
    return f"{text[: limit - 1]}…"


def _render(result: RunResult, context: CommentContext, detail: _Detail) -> str:
    verdicts = result.gate.verdicts if result.gate is not None else ()
    parts = [
        marker_line(context.marker),
        _headline(result, context),
        *_regressions([v for v in verdicts if v.outcome in _RED], result, detail),
        *_section("Not measurable", [v for v in verdicts if v.outcome in _BROKEN], detail.rows),
        *_section("Undecided", [v for v in verdicts if v.outcome in _OPEN], detail.rows),
        *_section("Accepted slowdowns", [v for v in verdicts if v.outcome is Outcome.ALLOWED], detail.rows),
        *_section("Faster", [v for v in verdicts if v.outcome is Outcome.IMPROVED], detail.improved, folded=True),
        *_unchanged([v for v in verdicts if v.outcome is Outcome.UNCHANGED], detail),
        *_executed_otherwise(result, verdicts, detail),
        *_environment(result),
        *_advice(result, detail),
        *_notes(result, detail),
        *_what_to_do(result, context, verdicts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(result: RunResult, context: CommentContext) -> str:
    lines = [f"### {_sign(result)} perfguard: {escape(result.verdict)}", "", f"**{_text(result.reason)}**"]
    blamed = [v for v in _worst_first(_red(result)) if v.blame]
    if blamed:
        lines += ["", f"Culprit: **{_text(blamed[0].blame or '')}**"]
    lines += ["", f"How sure: {_certainty(result)}"]
    if context.accepted_by is not None:
        lines += ["", f"Accepted by the label {code(context.accepted_by)}: the check passes whatever the verdict is."]
    if context.from_fork:
        lines += ["", "Measured by the fork's own workflow run; a reviewer should see that the change leaves it alone."]
    return "\n".join(lines)


def _sign(result: RunResult) -> str:
    return {"pass": "✅", "regressed": "🔺", "failed": "❌", "different": "❌"}.get(result.verdict, "⚠️")


def _red(result: RunResult) -> list[Verdict]:
    return [v for v in result.gate.verdicts if v.outcome is Outcome.REGRESSED] if result.gate is not None else []


def _certainty(result: RunResult) -> str:
    """The gate's contract, and what made a flag red."""
    red = [v for v in _red(result) if v.gating is Gating.GATING]
    said = []
    if red and all(v.confirmation is not None and v.confirmation.confirmed for v in red):
        said.append("each regression came back in an independent run with both arms moved in memory and on disk")
    if result.error_rate != "uncalibrated":
        said.append(result.error_rate)
    elif result.gate is not None:
        alpha = result.gate.policy.alpha
        said.append(f"uncalibrated: the false-alarm rate per gate is nominal (alpha {alpha:.1%})")
    return _text("; ".join(said)) if said else "nothing was compared."


def _regressions(red: Sequence[Verdict], result: RunResult, detail: _Detail) -> list[str]:
    if not red:
        return []
    shown = _worst_first(red)[: detail.rows]
    parts = [_bars(shown)]
    for verdict in shown[: detail.blamed]:
        changes = result.census_changes.get(verdict.case_id, ())
        lines = [f"{code(_id(verdict))}{_advisory(verdict)}: {_text(verdict.reason)}"]
        lines += [f"- {_text(verdict.blame)}"] if verdict.blame else []
        lines += [f"- executes otherwise: {_text(change.sentence)}" for change in changes[: detail.changes]]
        lines += [f"- {_text(line)}" for line in signal_lines(verdict)] if detail.signals else []
        parts.append("\n".join(lines))
    return [*parts, *_more(len(red) - len(shown), "regressed case")]


def _section(title: str, verdicts: Sequence[Verdict], rows: int, *, folded: bool = False) -> list[str]:
    if not verdicts:
        return []
    shown = _worst_first(verdicts)[:rows]
    heading = f"{title}: {format_count(len(verdicts), 'case')}"
    bars = _bars(shown) if shown else ""
    reasons = "" if folded else "\n".join(f"- {code(_id(v))}{_advisory(v)}: {_text(v.reason)}" for v in shown)
    body = "\n\n".join(part for part in (bars, reasons, *_more(len(verdicts) - len(shown), "case")) if part)
    return [_fold(heading, body)] if folded else [f"#### {heading}\n\n{body}"]


def _unchanged(verdicts: Sequence[Verdict], detail: _Detail) -> list[str]:
    if not verdicts:
        return []
    heading = f"Unchanged: {format_count(len(verdicts), 'case')}"
    return [_fold(heading, _bars(verdicts))] if detail.unchanged else [f"{heading}."]


def _executed_otherwise(result: RunResult, verdicts: Sequence[Verdict], detail: _Detail) -> list[str]:
    """What changed in the steps of cases that did not regress."""
    red = {v.case_id for v in verdicts if v.outcome is Outcome.REGRESSED}
    changed = {case: changes for case, changes in result.census_changes.items() if changes and case not in red}
    if not changed or not detail.changes:
        return []
    lines = []
    for case_id, changes in list(changed.items())[: detail.rows]:
        lines += [f"- {code(_cut(case_id, _LONGEST_ID))}: {_text(c.sentence)}" for c in changes[: detail.changes]]
    return [_fold(f"Executed otherwise, without a regression: {format_count(len(changed), 'case')}", "\n".join(lines))]


def _environment(result: RunResult) -> list[str]:
    """What differs between the arms beside their code, and where both ran."""
    baseline, candidate = result.arms.get("baseline"), result.arms.get("candidate")
    where = f"{escape(_cut(result.machine, _LONGEST_TEXT))} ({code(result.machine_id)})"
    if baseline is None or candidate is None:
        return [f"Machine: {where}."]
    rows = [
        (name, getattr(baseline, name), getattr(candidate, name))
        for name in ("torch", "python", "interpreter", "stack_id")
        if getattr(baseline, name) != getattr(candidate, name)
    ]
    if not rows:
        both = f"torch {escape(candidate.torch)}" if candidate.torch else "no torch"
        return [f"Environment: the same in both arms ({both}, Python {escape(candidate.python or '?')}), {where}."]
    lines = ["Environment: **it differs between the arms**", "", "| | baseline | candidate |", "|---|---|---|"]
    lines += [f"| {name} | {_cell(before)} | {_cell(after)} |" for name, before, after in rows]
    return ["\n".join([*lines, "", f"Machine: {where}."])]


def _advice(result: RunResult, detail: _Detail) -> list[str]:
    if not detail.advice:
        return []
    return [
        _fold(f"Advice on {_cut(case_id, _LONGEST_ID)}", render_findings_markdown(findings))
        for case_id, findings in list(result.findings.items())[: detail.rows]
        if findings
    ]


def _notes(result: RunResult, detail: _Detail) -> list[str]:
    notes = note_lines(result)
    if not notes or not detail.notes:
        return []
    return [_fold("What else there is to know", "\n".join(f"- {_text(note)}" for note in notes[: detail.rows]))]


def _what_to_do(result: RunResult, context: CommentContext, verdicts: Sequence[Verdict]) -> list[str]:
    red = _worst_first([v for v in verdicts if v.outcome is Outcome.REGRESSED])
    lines = []
    if context.reproduce:
        lines.append(f"- measure it again: {code(context.reproduce)}")
        lines += [f"- look at its ops: {code(f'{context.reproduce} --ops -c {_quoted(_id(red[0]))}')}"] if red else []
    if red:
        allow = f"perfguard allow {_quoted(_id(red[0]))} --max {_ceiling(red[0])}% --until 30d --reason '…'"
        label = f", or the label {code(context.accept_label)}" if context.accept_label else ""
        lines.append(f"- accept it: {code(allow)} on the base branch, whose allow-list is the one that counts{label}")
    if context.report_url:
        lines.append(f"- everything else: [report, raw samples and traces]({context.report_url})")
    return ["\n".join(lines)] if lines else []


def _bars(verdicts: Sequence[Verdict]) -> str:
    """A code block with a line for each case: sign, effect, interval, bar, case."""
    reach = reach_of(e for v in verdicts if (e := v.comparison.estimate) is not None)
    lines = []
    for verdict in verdicts:
        estimate = verdict.comparison.estimate
        effect = format_effect(estimate.log_ratio) if estimate else "-"
        bar = interval_bar(estimate, reach) if estimate and math.isfinite(estimate.log_ratio) else ""
        interval = format_interval(verdict.comparison)
        lines.append(
            f"{SIGNS[verdict.outcome][0]} {effect:>9}  {interval:<21} {bar:<25}  {_plain(_id(verdict))}"
            f"{_advisory(verdict)}"
        )
    return "\n".join(["```text", *lines, "```"]) if lines else ""


def _worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Gating before advisory, then by the size of the effect."""

    def rank(verdict: Verdict) -> tuple[bool, float]:
        estimate = verdict.comparison.estimate
        return verdict.gating is Gating.ADVISORY, -abs(estimate.log_ratio) if estimate else math.inf

    return sorted(verdicts, key=rank)


def _ceiling(verdict: Verdict) -> int:
    """Whole per cent that cover the upper end of a regression's interval."""
    estimate = verdict.comparison.estimate
    if estimate is None or not math.isfinite(estimate.log_ratio):
        return 1
    upper = estimate.interval.upper if math.isfinite(estimate.interval.upper) else estimate.log_ratio
    return max(1, math.ceil(math.expm1(min(upper, 5.0)) * 100))


def _fold(heading: str, body: str) -> str:
    return f"<details><summary>{html.escape(printable(heading))}</summary>\n\n{body}\n\n</details>"


def _more(number: int, noun: str) -> list[str]:
    return [f"and {format_count(number, f'more {noun}')}"] if number > 0 else []


def _advisory(verdict: Verdict) -> str:
    return " (advisory)" if verdict.gating is Gating.ADVISORY else ""


def _text(text: str) -> str:
    return escape(_cut(text, _LONGEST_TEXT))


def _cell(value: str | None) -> str:
    return code(_cut(value, _LONGEST_ID)) if value else "-"


def _id(verdict: Verdict) -> str:
    return _cut(verdict.case_id, _LONGEST_ID)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _plain(text: str) -> str:
    """Text inside a code block, where only the fence itself could end it."""
    return printable(text).replace("`", "'")


def _quoted(text: str) -> str:
    """A case id as one word of a shell; ids of a fork may hold anything."""
    return "'" + text.replace("'", "'\\''") + "'"
