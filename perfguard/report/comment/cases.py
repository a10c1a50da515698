"""The cases of a gate in a comment: bars, what regressed and why, and the rest, folded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

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
from perfguard.report.rows import CaseRow, case_rows
from perfguard.units import format_count, format_effect, printable, shorten

_LONGEST_TEXT = 700
"""Characters of one sentence; texts of a fork have no length of their own that could be relied on."""
_LONGEST_ID = 300
_INTERVAL_HEAD = "95 % interval"


class Detail(Struct, frozen=True, kw_only=True):
    """How much is shown."""

    unchanged: bool = True  # The cases that are unchanged; else their number
    advice: bool = True  # Findings
    signals: bool = True  # What changed beside wall time
    notes: bool = True  # Notes on the run
    changes: int = 5  # Changes of what a case executes
    improved: int = 200  # Cases that are faster
    rows: int = 200  # Cases of any other kind
    blamed: int = 50  # Regressed cases that are shown in full


def case_sections(result: RunResult, detail: Detail) -> list[str]:
    """Everything on cases, what is wrong first."""
    verdicts = result.gate.verdicts if result.gate is not None else ()
    names = names_in(result)

    def rows(*outcomes: Outcome) -> list[CaseRow]:
        return case_rows(of(verdicts, *outcomes), names)

    open_cases = rows(Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE, Outcome.NO_BASELINE)
    same_code, untouched = (len(rows(outcome)) for outcome in (Outcome.SAME_CODE, Outcome.UNTOUCHED))
    sections = [
        *_regressions(rows(Outcome.REGRESSED), result, detail),
        _section("Results that are not good enough", rows(Outcome.INVALID), result, detail.rows),
        _section("Not measurable", rows(Outcome.FAILED, Outcome.DIFFERENT), result, detail.rows),
        _section("Undecided", open_cases, result, detail.rows),
        _section("Accepted slowdowns", rows(Outcome.ALLOWED), result, detail.rows),
        _folded("Faster", rows(Outcome.IMPROVED), detail.improved),
        _folded("Unchanged", found := rows(Outcome.UNCHANGED), len(found) if detail.unchanged else 0),
        f"≡ same code: {format_count(same_code, 'case')}" if same_code else "",
        f"≡ untouched: {format_count(untouched, 'case')}, for which both arms run the same code" if untouched else "",
        _changed(result, verdicts, detail),
    ]
    return [section for section in sections if section]


def of(verdicts: Sequence[Verdict], *outcomes: Outcome) -> list[Verdict]:
    """Those with one of the outcomes: gating before advisory, then by the size of the effect."""
    return sorted((v for v in verdicts if v.outcome in outcomes), key=_rank)


def _rank(verdict: Verdict) -> tuple[bool, float]:
    size = abs(verdict.effect.log_ratio) if verdict.effect is not None else 0.0
    return verdict.gating is Gating.ADVISORY, 0.0 if math.isnan(size) else -size


def text_of(text: str) -> str:
    """A sentence, escaped; cut where no sentence is so long, `-` where there is none."""
    return escape(shorten(text, _LONGEST_TEXT)) or "-"


def code_of(text: str) -> str:
    """A name in a code span; cut where no name is so long."""
    return code(shorten(text, _LONGEST_ID))


def fold(heading: str, body: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{escape_html(shorten(heading, _LONGEST_ID))}</summary>\n\n{body}\n\n</details>"


def _regressions(red: Sequence[CaseRow], result: RunResult, detail: Detail) -> list[str]:
    shown = red[: detail.rows]
    said = (_regression(row, result, detail, is_named=row is red[0]) for row in shown[: detail.blamed])
    return [_bars(shown), *said, _more(len(red) - len(shown), "regressed case")]


def _regression(row: CaseRow, result: RunResult, detail: Detail, *, is_named: bool) -> str:
    """What is known of one; `is_named` where the headline has its culprit already."""
    verdict = row.verdict
    changes = beyond_culprits(result.op_count_changes.get(verdict.case_id, ()), attribution_of(verdict, result))
    lines = [
        *([] if is_named else ops_lines(verdict, result)),
        *(f"changed: {change_text(change)}" for change in changes[: detail.changes]),
        *(signal_lines(verdict) if detail.signals else ()),
    ]
    head = f"{code_of(row.name)}{row.advisory}, {row.times}: {text_of(describe_all(verdict.reasons))}"
    return "\n".join([head, *(f"- {text_of(line)}" for line in lines)])


def _section(title: str, rows: Sequence[CaseRow], result: RunResult, most: int) -> str:
    """The bars, and a reason for each case; empty without cases."""
    shown = rows[:most]
    reasons = (
        f"- {code_of(row.name)}{row.advisory}: {text_of('; '.join(_certain_first(row.verdict, result)))}"
        for row in shown
    )
    head = f"#### {title}: {format_count(len(rows), 'case')}"
    parts = [head, _bars(shown), "\n".join(reasons), _more(len(rows) - len(shown), "case")]
    return "\n\n".join(filter(None, parts)) if rows else ""


def _certain_first(verdict: Verdict, result: RunResult) -> list[str]:
    """What is counted of a case, before what its times say."""
    changes = result.op_count_changes.get(verdict.case_id, ())
    counted = (
        [SAME_OP_COUNTS] if has_same_op_counts(verdict, result) else [f"changed: {change_text(c)}" for c in changes[:1]]
    )
    return [*counted, describe_all(verdict.reasons)]


def _folded(title: str, rows: Sequence[CaseRow], most: int) -> str:
    """The bars, folded; the number alone where nothing is shown, and empty without cases."""
    heading = f"{title}: {format_count(len(rows), 'case')}"
    if not rows or not most:
        return f"{heading}." if rows else ""
    return fold(heading, "\n\n".join(filter(None, (_bars(rows[:most]), _more(len(rows) - most, "case")))))


def _changed(result: RunResult, verdicts: Sequence[Verdict], detail: Detail) -> str:
    """What changed in the steps of cases that did not regress."""
    red = {v.case_id for v in verdicts if v.outcome is Outcome.REGRESSED}
    changed = {case: changes for case, changes in result.op_count_changes.items() if changes and case not in red}
    if not changed or not detail.changes:
        return ""
    lines = (
        f"- {code_of(name_in(result, case_id))}: {text_of(change_text(change))}"
        for case_id, changes in list(changed.items())[: detail.rows]
        for change in changes[: detail.changes]
    )
    return fold(f"Changed op counts, no regression: {format_count(len(changed), 'case')}", "\n".join(lines))


def _bars(rows: Sequence[CaseRow]) -> str:
    """A code block with a line for each case that has an effect; empty where none has."""
    measured = [(row, row.verdict.effect) for row in rows if row.verdict.effect is not None]
    if not measured:
        return ""
    reach = reach_of(estimate for _, estimate in measured)
    width = max(len(_INTERVAL_HEAD), *(len(row.interval.text) for row, _ in measured))
    lines = [f"     effect  {_INTERVAL_HEAD:<{width}}  {axis_labels(reach):<{BAR_WIDTH}}  case"]
    lines += [
        f"{row.mark.sign} {row.effect.text:>9}  {row.interval.text:<{width}}  {interval_bar(estimate, reach)}  "
        f"{printable(shorten(row.name, _LONGEST_ID))}{row.advisory}"
        for row, estimate in measured
    ]
    return code_block(lines, "text")


def _more(number: int, noun: str) -> str:
    return f"and {format_count(number, f'more {noun}')}" if number > 0 else ""


_CELLS_A_SIDE = 12
_LEAST_REACH = 0.02
"""The axis shows at least this log-ratio to both sides, so that noise looks as small as it is."""
_MOST_REACH = math.log(100)  # Effects beyond a hundredfold end at the edge

BAR_WIDTH = 2 * _CELLS_A_SIDE + 1  # Characters of a bar, and of an axis


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
