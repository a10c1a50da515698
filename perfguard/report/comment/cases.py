"""The cases of a gate in a comment: bars, what regressed and why, and the rest, folded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfguard.records.estimate import Estimate
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import beyond_culprits, change_text
from perfguard.report.escaping import code, code_block, escape, escape_html
from perfguard.report.lines import (
    SAME_OP_COUNTS,
    attribution_of,
    has_same_op_counts,
    name_in,
    names_in,
    ops_lines,
    signal_lines,
)
from perfguard.report.messages.catalog import describe_all
from perfguard.report.terminal.result import SIGNS, format_interval
from perfguard.units import format_count, format_effect, format_seconds, printable, shorten

_LONGEST_TEXT = 700
"""Characters of one sentence; texts of a fork have no length of their own that could be relied on."""
_LONGEST_ID = 300
_INTERVAL_HEAD = "95 % interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much is shown."""

    unchanged: bool = True
    """The cases that are unchanged; else their number."""
    advice: bool = True
    """Findings."""
    signals: bool = True
    """What changed beside wall time."""
    notes: bool = True
    """Notes on the run."""
    changes: int = 5
    """Changes of what a case executes."""
    improved: int = 200
    """Cases that are faster."""
    rows: int = 200
    """Cases of any other kind."""
    blamed: int = 50
    """Regressed cases that are told in full."""


def case_sections(result: RunResult, detail: Detail) -> list[str]:
    """Everything on cases, what is wrong first."""
    verdicts = result.gate.verdicts if result.gate is not None else ()
    return [
        *_regressions(of(verdicts, Outcome.REGRESSED), result, detail),
        *_section("Not measurable", of(verdicts, Outcome.FAILED, Outcome.DIFFERENT), result, detail.rows),
        *_section(
            "Undecided",
            of(verdicts, Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.NO_BASELINE),
            result,
            detail.rows,
        ),
        *_section("Accepted slowdowns", of(verdicts, Outcome.ALLOWED), result, detail.rows),
        *_faster(of(verdicts, Outcome.IMPROVED), result, detail.improved),
        *_unchanged(of(verdicts, Outcome.UNCHANGED), result, detail),
        *_same_code(of(verdicts, Outcome.SAME_CODE)),
        *_changed(result, verdicts, detail),
    ]


def _same_code(verdicts: Sequence[Verdict]) -> list[str]:
    return [f"≡ same code: {format_count(len(verdicts), 'case')}"] if verdicts else []


def of(verdicts: Sequence[Verdict], *outcomes: Outcome) -> list[Verdict]:
    """Those with one of the outcomes: gating before advisory, then by the size of the effect."""
    return sorted((v for v in verdicts if v.outcome in outcomes), key=_rank)


def text_of(text: str) -> str:
    """A sentence, escaped; cut where no sentence is so long, `-` where there is none."""
    return escape(shorten(text, _LONGEST_TEXT)) or "-"


def code_of(text: str) -> str:
    """A name in a code span; cut where no name is so long."""
    return code(shorten(text, _LONGEST_ID))


def fold(heading: str, body: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{escape_html(shorten(heading, _LONGEST_ID))}</summary>\n\n{body}\n\n</details>"


def _regressions(red: Sequence[Verdict], result: RunResult, detail: Detail) -> list[str]:
    if not red:
        return []
    shown = red[: detail.rows]
    told = [_regression(v, result, detail, named=v is red[0]) for v in shown[: detail.blamed]]
    return [_bars(shown, result), *told, *_more(len(red) - len(shown), "regressed case")]


def _regression(verdict: Verdict, result: RunResult, detail: Detail, *, named: bool) -> str:
    """What is known of one; `named` where the headline has its culprit already."""
    comparison = verdict.comparison
    times = f"{format_seconds(comparison.baseline_median_s)} → {format_seconds(comparison.candidate_median_s)}"
    name = code_of(name_in(result, verdict.case_id))
    lines = [f"{name}{_advisory(verdict)}, {times}: {text_of(describe_all(verdict.reasons))}"]
    lines += [] if named else [f"- {text_of(line)}" for line in ops_lines(verdict, result)]
    changes = beyond_culprits(result.op_count_changes.get(verdict.case_id, ()), attribution_of(verdict, result))
    lines += [f"- changed: {text_of(change_text(change))}" for change in changes[: detail.changes]]
    lines += [f"- {text_of(line)}" for line in signal_lines(verdict)] if detail.signals else []
    return "\n".join(lines)


def _section(title: str, verdicts: Sequence[Verdict], result: RunResult, rows: int) -> list[str]:
    if not verdicts:
        return []
    shown, names = verdicts[:rows], names_in(result)
    reasons = [
        f"- {code_of(names[v.case_id])}{_advisory(v)}: {text_of(describe_all(v.reasons))}"
        + (f"; {SAME_OP_COUNTS}" if has_same_op_counts(v, result) else "")
        for v in shown
    ]
    parts = [_bars(shown, result), "\n".join(reasons), *_more(len(verdicts) - len(shown), "case")]
    return ["\n\n".join([f"#### {title}: {format_count(len(verdicts), 'case')}", *filter(None, parts)])]


def _faster(verdicts: Sequence[Verdict], result: RunResult, rows: int) -> list[str]:
    heading = f"Faster: {format_count(len(verdicts), 'case')}"
    if not verdicts or not rows:
        return [f"{heading}."] if verdicts else []
    parts = [_bars(verdicts[:rows], result), *_more(len(verdicts) - rows, "case")]
    return [fold(heading, "\n\n".join(filter(None, parts)))]


def _unchanged(verdicts: Sequence[Verdict], result: RunResult, detail: Detail) -> list[str]:
    if not verdicts:
        return []
    heading = f"Unchanged: {format_count(len(verdicts), 'case')}"
    return [fold(heading, _bars(verdicts, result))] if detail.unchanged else [f"{heading}."]


def _changed(result: RunResult, verdicts: Sequence[Verdict], detail: Detail) -> list[str]:
    """What changed in the steps of cases that did not regress."""
    red = {v.case_id for v in verdicts if v.outcome is Outcome.REGRESSED}
    changed = {case: changes for case, changes in result.op_count_changes.items() if changes and case not in red}
    if not changed or not detail.changes:
        return []
    lines = []
    for case_id, changes in list(changed.items())[: detail.rows]:
        name = code_of(name_in(result, case_id))
        lines += [f"- {name}: {text_of(change_text(change))}" for change in changes[: detail.changes]]
    return [fold(f"Changed op counts, no regression: {format_count(len(changed), 'case')}", "\n".join(lines))]


def _bars(verdicts: Sequence[Verdict], result: RunResult) -> str:
    """A code block with a line for each case that has an effect; empty where none has."""
    names = names_in(result)
    measured = [(v, e) for v in verdicts if (e := v.effect) is not None]
    if not measured:
        return ""
    reach = reach_of(estimate for _, estimate in measured)
    intervals = [format_interval(verdict.effect) for verdict, _ in measured]
    width = max(map(len, (_INTERVAL_HEAD, *intervals)))
    lines = [f"     effect  {_INTERVAL_HEAD:<{width}}  {axis_labels(reach):<{BAR_WIDTH}}  case"]
    for (verdict, estimate), interval in zip(measured, intervals, strict=True):
        lines.append(
            f"{SIGNS[verdict.outcome][0]} {format_effect(estimate.log_ratio):>9}  "
            f"{interval:<{width}}  {interval_bar(estimate, reach)}  "
            f"{printable(shorten(names[verdict.case_id], _LONGEST_ID))}{_advisory(verdict)}"
        )
    return code_block(lines, "text")


def _rank(verdict: Verdict) -> tuple[bool, float]:
    estimate = verdict.effect
    size = abs(estimate.log_ratio) if estimate is not None else 0.0
    return verdict.gating is Gating.ADVISORY, -size if size == size else 0.0  # noqa: PLR0124 - nan has no place


def _more(number: int, noun: str) -> list[str]:
    return [f"and {format_count(number, f'more {noun}')}"] if number > 0 else []


def _advisory(verdict: Verdict) -> str:
    return " (advisory)" if verdict.gating is Gating.ADVISORY else ""


_CELLS_A_SIDE = 12
_LEAST_REACH = 0.02
"""The axis shows at least this log-ratio to both sides, so that noise looks as small as it is."""
_MOST_REACH = math.log(100)
"""Effects beyond a hundredfold end at the edge."""

BAR_WIDTH = 2 * _CELLS_A_SIDE + 1
"""Characters of a bar, and of an axis."""


def reach_of(estimates: Iterable[Estimate]) -> float:
    """Largest log-ratio that an axis must show for these estimates; infinite ends are left out."""
    ends = [abs(end) for e in estimates for end in (e.log_ratio, e.interval.lower, e.interval.upper)]
    return min(_MOST_REACH, max([_LEAST_REACH, *(end for end in ends if math.isfinite(end))]))


def interval_bar(estimate: Estimate, reach: float) -> str:
    """`·······│──█──·····`: the axis from `-reach` to `reach`, the interval on it, the effect in it, the middle is 0.

    Where the effect is unknown, the axis alone.
    """
    cells = ["·"] * BAR_WIDTH
    interval = estimate.interval
    if math.isfinite(estimate.log_ratio):
        lower = _cell(interval.lower if math.isfinite(interval.lower) else -reach, reach)
        upper = _cell(interval.upper if math.isfinite(interval.upper) else reach, reach)
        for place in range(lower, upper + 1):
            cells[place] = "─"
    cells[_CELLS_A_SIDE] = "│"
    if math.isfinite(estimate.log_ratio):
        cells[_cell(estimate.log_ratio, reach)] = "█"
    return "".join(cells)


def axis_labels(reach: float) -> str:
    """What stands above the bars: both ends, and 0 in the middle."""
    return f"{format_effect(-reach):<{_CELLS_A_SIDE}}0{format_effect(reach):>{_CELLS_A_SIDE}}"


def _cell(log_ratio: float, reach: float) -> int:
    return _CELLS_A_SIDE + round(min(1.0, max(-1.0, log_ratio / reach)) * _CELLS_A_SIDE)
