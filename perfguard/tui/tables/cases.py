"""The table of cases, for the live screen and for the forest plot; one case in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from perfguard.report.culprits import beyond_culprits, change_text, step_text
from perfguard.report.culprits import culprit_lines as report_lines
from perfguard.report.lines import SHOWN_CHANGES
from perfguard.report.messages.advice import change_of, title_of, where_of
from perfguard.report.messages.catalog import describe
from perfguard.report.scales import bounds_of, limit_for, ratio_of
from perfguard.tui.drawing.grid import sparkline
from perfguard.tui.drawing.plots import (
    EffectAxis,
    axis_line,
    effect_span,
    effect_text,
    ends_of,
    interval_bar,
    interval_line,
    role_of_candidate,
)
from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, cut, line, plain, shortened, wrapped
from perfguard.tui.drawing.verdicts import mark_of, urgency
from perfguard.tui.tables.columns import Column, TableSpec, descending, falling, number
from perfguard.units import format_count, format_ratio, format_seconds, printable
from perfguard.watch.view.run_view import CaseSeries, CaseState, CaseView

EQUIVALENCE_RATIO = 0.02  # Drawn as the edges of what counts as unchanged
_NAME_WIDTH = 10
_SHOWN_FINDINGS = 3


def axis_for(cases: Sequence[CaseView]) -> EffectAxis:
    """One axis for all rows: 90 % of the intervals lie inside."""
    values: list[float | None] = []
    for case in cases:
        values += ends_of(case) or ((ratio_of(case.log_ratio),) if case.log_ratio is not None else ())
    return EffectAxis(limit_ratio=limit_for(values), margin_ratio=EQUIVALENCE_RATIO)


@lru_cache(maxsize=4)
def live_table(axis: EffectAxis, glyphs: Glyphs) -> TableSpec[CaseView]:
    """Case, blocks, both medians, effect with its interval as a bar, noise, verdict."""
    return _table(
        _CASE,
        Column(
            "n", "n", lambda case, _: line(str(case.blocks)), 4, rank=3, align_right=True, sort=lambda case: case.blocks
        ),
        number("baseline", lambda case: case.baseline_s, format_seconds, 9, rank=5),
        number("candidate", lambda case: case.candidate_s, format_seconds, 9, rank=4),
        _EFFECT,
        _bar_column(axis, glyphs, width=13, rank=2),
        number("noise", lambda case: case.noise_ratio, format_ratio, 8, rank=6),
        _VERDICT,
    )


@lru_cache(maxsize=4)
def forest_table(axis: EffectAxis, glyphs: Glyphs) -> TableSpec[CaseView]:
    """One row a case on a common axis of effects."""
    bounds: Column[CaseView] = Column(
        "bounds", "95 % interval", lambda case, _: interval_line(case), 16, rank=4, is_picture=True
    )
    return _table(_CASE, _bar_column(axis, glyphs, width=21, rank=1), _EFFECT, bounds, _VERDICT)


def _table(*columns: Column[CaseView]) -> TableSpec[CaseView]:
    return TableSpec(
        columns=columns,
        key_of=lambda case: case.case_id,
        text_of=text_of_case,
        empty="no case yet: the run has not begun",
    )


def text_of_case(case: CaseView) -> str:
    """What a filter looks at: name, verdict, where it stands."""
    gating = "gating" if case.is_gating else "advisory"
    return f"{case.case_id} {mark_of(case).word} {case.outcome or ''} {case.state.value} {gating}"


def _case_cell(case: CaseView, width: int) -> Line:
    role = Role.STRONG if case.state is CaseState.MEASURING else Role.PLAIN if case.is_gating else Role.MUTED
    return line(Span(shortened(printable(case.title), width), role))


def _verdict_cell(case: CaseView, _: int) -> Line:
    text, role = mark_of(case).span
    return line(Span(text if case.is_gating else f"({text})", role))


def _bar_column(axis: EffectAxis, glyphs: Glyphs, *, width: int, rank: int) -> Column[CaseView]:
    return Column(
        "interval",
        lambda room: axis_line(room, axis),
        lambda case, room: _bar_cell(case, room, axis, glyphs),
        width,
        stretch=3,
        rank=rank,
        is_picture=True,
        text=lambda case: plain(interval_line(case)),
        sort=_width_of_interval,
    )


def _bar_cell(case: CaseView, width: int, axis: EffectAxis, glyphs: Glyphs) -> Line:
    """Why there is no interval, once that is known; else the interval."""
    if case.log_ratio is None and case.outcome is not None and case.reasons:
        return line(Span(cut(printable(describe(case.reasons[0])), width), Role.MUTED))
    return interval_bar(case, width, axis, glyphs)


def _width_of_interval(case: CaseView) -> float:
    ends = ends_of(case)
    return ends[1] - ends[0] if ends else math.inf


_CASE: Column[CaseView] = Column("case", "case", _case_cell, 18, stretch=2, sort=lambda case: case.case_id)
_EFFECT: Column[CaseView] = falling("effect", lambda case: (effect_span(case),), lambda case: case.log_ratio, 9, rank=1)
_VERDICT: Column[CaseView] = Column(
    "verdict",
    "verdict",
    _verdict_cell,
    16,
    sort=lambda case: (urgency(case), descending(case.log_ratio)),
    is_falling=True,
)


def case_lines(case: CaseView, series: CaseSeries, width: int, glyphs: Glyphs) -> list[Line]:
    """Name and verdict, numbers, the latest samples, culprits, changed op counts, advice, the reason."""
    advisory = Span("" if case.is_gating else " (advisory)", Role.MUTED)
    lines = wrapped(case.case_id, width, Role.STRONG, indent=2)
    lines.append(line(mark_of(case).span, advisory))
    lines += [*_numbers(case, width), *_samples(case, series, width, glyphs), *_blame(case, width)]
    for reason in case.reasons:
        lines += wrapped(describe(reason), width, Role.MUTED)
    return lines


def _numbers(case: CaseView, width: int) -> list[Line]:
    """All numbers of a case: what columns that were left out would have said."""
    if case.candidate_s is None and case.baseline_s is None:
        return [line(Span("not measured", Role.MUTED))]
    arms = f"median {format_seconds(case.candidate_s)}"
    if case.baseline_s is not None:
        arms = f"baseline {format_seconds(case.baseline_s)} → candidate {format_seconds(case.candidate_s)}"
    provisional = " so far" if case.outcome is None else ""
    effect = f"effect{provisional} {effect_text(case)}" if case.log_ratio is not None else "no effect yet"
    blocks = format_count(case.blocks, "block") + (f" and {case.voided} voided" if case.voided else "")
    samples = format_count(case.samples, "sample")
    return [
        *wrapped(f"{arms}, {effect}", width, indent=2),
        *wrapped(f"{blocks}, {samples} per arm, noise {format_ratio(case.noise_ratio)}", width, Role.MUTED, indent=2),
    ]


def _samples(case: CaseView, series: CaseSeries, width: int, glyphs: Glyphs) -> list[Line]:
    """The latest samples of each arm on one scale, newest at the right; one outlier must not flatten all others."""
    room = width - _NAME_WIDTH
    arms = (("baseline", series.baseline_s, Role.BASELINE), ("candidate", series.candidate_s, role_of_candidate(case)))
    shown = [value for _, values, _ in arms for value in values[-room:]] if room >= 8 else []
    if not shown:
        return []
    ordered = sorted(filter(math.isfinite, shown))
    without_highest = len(ordered) - len(ordered) // 20  # a twentieth, which is none of fewer than 20
    low, high = bounds_of(ordered[:without_highest], margin=0.02)
    lines = []
    for name, values, role in arms:
        if values:
            cells = sparkline(values, min(room, len(values)), glyphs, low=low, high=high)
            lines.append(line(Span(f"{name:<{_NAME_WIDTH}}", role), Span(cells, role)))
    scale = f"{format_seconds(low)} to {format_seconds(high)}, newest at the right"
    return [*lines, line(Span(f"{'':<{_NAME_WIDTH}}{scale}", Role.AXIS))]


def _blame(case: CaseView, width: int) -> list[Line]:
    """Which ops the difference is in, what changed by op counts, and advice."""
    lines: list[Line] = []
    if case.attribution is not None:
        for culprit in report_lines(case.attribution):
            lines += wrapped(culprit.headline, width, Role.STRONG, indent=4)
            lines += wrapped(f"  {culprit.details}", width, Role.MUTED, indent=4) if culprit.details else []
        lines = lines or wrapped(step_text(case.attribution), width, indent=4)
    changes = beyond_culprits(case.op_counts or (), case.attribution)
    for change in changes[:SHOWN_CHANGES]:
        lines += wrapped(f"changed: {change_text(change)}", width, indent=4)
    for finding in case.findings[:_SHOWN_FINDINGS]:
        advice = f"{finding.severity.value}: {title_of(finding)} {where_of(finding)}"
        lines += wrapped(advice, width, Role.OPEN, indent=4)
        lines += wrapped(f"    try {change_of(finding)}", width, Role.MUTED, indent=4)
    more = len(changes) - SHOWN_CHANGES
    if more > 0:
        lines.append(line(Span(f"and {format_count(more, 'smaller change')} in op counts", Role.MUTED)))
    return lines
