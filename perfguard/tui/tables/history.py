"""The table of cases over the recorded runs."""

from __future__ import annotations

from perfguard.report.case_history import CaseHistory
from perfguard.report.scales import bounds_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import Line, Role, Span, line, shortened
from perfguard.tui.drawing.sparklines import sparkline
from perfguard.tui.drawing.verdicts import Mark, mark_of_outcome
from perfguard.tui.tables.columns import Column, TableSpec, falling, titled
from perfguard.units import format_effect, format_seconds, printable
from perfguard.watch.view.run_view import HistoryPoint

_SINCE = {"stored baseline": "baseline", "run before": "run before", None: "-"}


def history_table(glyphs: Glyphs) -> TableSpec[CaseHistory]:
    """Case, runs, newest median, against the baseline, trend, changes of host or software, last verdict."""
    return TableSpec(
        columns=(
            Column(
                id="case",
                head=titled("case"),
                draw=lambda row, width: line(shortened(printable(row.title), width)),
                width=18,
                stretch=2,
                sort=lambda row: row.case_id,
            ),
            falling("runs", lambda row: line(str(len(row.points))), lambda row: len(row.points), width=5, rank=3),
            Column(
                id="trend",
                head=titled("trend"),
                draw=lambda row, width: _trend(row, width, glyphs),
                width=10,
                stretch=2,
                rank=1,
                is_picture=True,
            ),
            falling("latest", _latest, lambda row: row.latest.median_s, width=9),
            falling("change", _change, lambda row: row.log_ratio or 0.0, width=9),
            Column(id="since", head=titled("since"), draw=_since, width=12, rank=4),
            Column(id="verdict", head=titled("last verdict"), draw=_verdict, width=15, rank=2),
        ),
        key_of=lambda row: row.case_id,
        text_of=lambda row: f"{row.case_id} {_mark(row.latest).word}",
        empty="no recorded run holds a case; perfguard gate makes one",
    )


def _trend(row: CaseHistory, width: int, glyphs: Glyphs) -> Line:
    values = [point.median_s for point in row.points]
    low, high = bounds_of(values)
    return line(Span(sparkline(values, width, glyphs, low=low, high=high), Role.CANDIDATE))


def _latest(row: CaseHistory) -> Line:
    return line(format_seconds(row.latest.median_s))


def _change(row: CaseHistory) -> Line:
    ratio = row.log_ratio
    spread = max(row.latest.spread_ratio or 0.0, 0.02)
    role = Role.MUTED if ratio is None or abs(ratio) < spread else Role.SLOWER if ratio > 0 else Role.FASTER
    return line(Span(format_effect(ratio), role))


def _since(row: CaseHistory, _: int) -> Line:
    return line(Span(_SINCE[row.reference], Role.MUTED))


def _mark(point: HistoryPoint) -> Mark:
    if point.outcome is None:
        return Mark("·", "measured", Role.MUTED)
    return mark_of_outcome(point.outcome)


def _verdict(row: CaseHistory, _: int) -> Line:
    mark = _mark(row.latest)
    return line(Span(f"{mark.sign} {mark.word}", mark.role))
