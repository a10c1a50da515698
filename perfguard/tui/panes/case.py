"""Everything about one case: what the table has no room for, its samples, and what is to blame."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.records.steps.ops import Attribution
from perfguard.report.culprits import beyond_culprits, change_text, step_text
from perfguard.report.culprits import culprit_lines as report_lines
from perfguard.report.lines import SHOWN_CHANGES
from perfguard.report.messages.advice import change_of, title_of, where_of
from perfguard.report.messages.catalog import describe
from perfguard.report.scales import bounds_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.drawing.sparklines import sparkline
from perfguard.tui.drawing.verdicts import verdict_line
from perfguard.tui.tables.cases import summary_lines
from perfguard.units import format_count, format_seconds
from perfguard.watch.view.run_view import CaseSeries, CaseView

_NAME_WIDTH = 10
_SHOWN_FINDINGS = 3


def case_lines(case: CaseView, series: CaseSeries, width: int, glyphs: Glyphs) -> list[Line]:
    """Name and verdict, numbers, the latest samples, culprits, changed op counts, the reason."""
    lines = wrapped(case.case_id, width, Role.STRONG, indent=2)
    lines.append(verdict_line(case))
    lines += summary_lines(case)
    lines += stream_lines(series, width, glyphs)
    lines += blame_of(case, width)
    for reason in case.reasons:
        lines += wrapped(describe(reason), width, Role.MUTED)
    return lines


def stream_lines(series: CaseSeries, width: int, glyphs: Glyphs) -> list[Line]:
    """The latest samples of each arm on one scale, newest at the right."""
    room = width - _NAME_WIDTH
    if room < 8:
        return []
    shown = [value for values in (series.baseline_s, series.candidate_s) for value in values[-room:]]
    if not shown:
        return []
    low, high = _robust_bounds(shown)
    lines = []
    for name, values, role in (
        ("baseline", series.baseline_s, Role.BASELINE),
        ("candidate", series.candidate_s, Role.CANDIDATE),
    ):
        if values:
            cells = sparkline(values, min(room, len(values)), glyphs, low=low, high=high)
            lines.append(line(Span(f"{name:<{_NAME_WIDTH}}", role), Span(cells, role)))
    scale = f"samples, newest at the right, {format_seconds(low)} to {format_seconds(high)}"
    return [*lines, line(Span(f"{'':<{_NAME_WIDTH}}{scale}", Role.AXIS))]


def blame_of(case: CaseView, width: int) -> list[Line]:
    """Which ops the difference is in, and what changed by op counts."""
    lines: list[Line] = []
    if case.attribution is not None:
        lines += culprit_lines(case.attribution, width)
    changes = beyond_culprits(case.op_counts or (), case.attribution)
    for change in changes[:SHOWN_CHANGES]:
        lines += wrapped(f"changed: {change_text(change)}", width, indent=4)
    for finding in case.findings[:_SHOWN_FINDINGS]:
        lines += wrapped(
            f"{finding.severity.value}: {title_of(finding)} {where_of(finding)}", width, Role.OPEN, indent=4
        )
        lines += wrapped(f"    try {change_of(finding)}", width, Role.MUTED, indent=4)
    more = len(changes) - SHOWN_CHANGES
    if more > 0:
        lines.append(line(Span(f"and {format_count(more, 'smaller change')} in op counts", Role.MUTED)))
    return lines


def culprit_lines(attribution: Attribution, width: int) -> list[Line]:
    """Headline, then place and cost, of at most three culprits; without any, how much the step changed."""
    lines: list[Line] = []
    for culprit in report_lines(attribution):
        lines += wrapped(culprit.headline, width, Role.STRONG, indent=4)
        lines += wrapped(f"  {culprit.details}", width, Role.MUTED, indent=4) if culprit.details else []
    return lines or wrapped(step_text(attribution), width, indent=4)


def _robust_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Ends of the scale without the highest twentieth: one outlier must not flatten everything else."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if len(ordered) >= 20:
        ordered = ordered[: len(ordered) - len(ordered) // 20]
    return bounds_of(ordered, margin=0.02)
