"""The table of cases, for the live screen and for the forest plot."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfguard.report.scales import limit_for, ratio_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.intervals import (
    EffectAxis,
    axis_line,
    effect_span,
    effect_text,
    ends_of,
    interval_bar,
    interval_line,
)
from perfguard.tui.drawing.spans import Line, Role, Span, line, plain, shortened
from perfguard.tui.drawing.verdicts import mark_of, urgency
from perfguard.tui.tables.columns import Column, TableSpec, descending, falling, titled
from perfguard.units import format_count, format_ratio, format_seconds, printable
from perfguard.watch.view.run_view import CaseState, CaseView

EQUIVALENCE_RATIO = 0.02
"""Drawn as the edges of what counts as unchanged."""


def axis_for(cases: Sequence[CaseView]) -> EffectAxis:
    """One axis for all rows: 90 % of the intervals lie inside."""
    values: list[float | None] = []
    for case in cases:
        values += ends_of(case) or ((ratio_of(case.log_ratio),) if case.log_ratio is not None else ())
    return EffectAxis(limit_ratio=limit_for(values), margin_ratio=EQUIVALENCE_RATIO)


def live_table(axis: EffectAxis, glyphs: Glyphs) -> TableSpec[CaseView]:
    """Case, blocks, both medians, effect with its interval as a bar, noise, verdict."""
    return TableSpec(
        columns=(
            _CASE,
            _BLOCKS,
            _BASELINE,
            _CANDIDATE,
            _EFFECT,
            _bar_column(axis, glyphs, width=13, rank=2),
            _NOISE,
            _VERDICT,
        ),
        key_of=lambda case: case.case_id,
        text_of=text_of_case,
        empty="no case yet: the run has not begun",
    )


def forest_table(axis: EffectAxis, glyphs: Glyphs) -> TableSpec[CaseView]:
    """One row a case on a common axis of effects."""
    return TableSpec(
        columns=(_CASE, _bar_column(axis, glyphs, width=21, rank=1), _EFFECT, _INTERVAL, _VERDICT),
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
    mark = mark_of(case)
    text = f"{mark.sign} {mark.word}"
    return line(Span(text if case.is_gating else f"({text})", mark.role))


def _bar_column(axis: EffectAxis, glyphs: Glyphs, *, width: int, rank: int) -> Column[CaseView]:
    return Column(
        id="interval",
        head=lambda room: axis_line(room, axis),
        draw=lambda case, room: interval_bar(case, room, axis, glyphs),
        width=width,
        stretch=3,
        rank=rank,
        is_picture=True,
        text=lambda case: plain(interval_line(case)),
        sort=_width_of_interval,
    )


def _width_of_interval(case: CaseView) -> float:
    ends = ends_of(case)
    return ends[1] - ends[0] if ends else math.inf


_CASE: Column[CaseView] = Column(
    id="case", head=titled("case"), draw=_case_cell, width=18, stretch=2, sort=lambda case: case.case_id
)
_BLOCKS: Column[CaseView] = Column(
    id="n",
    head=titled("n"),
    draw=lambda case, _: line(str(case.blocks)),
    width=4,
    rank=3,
    align_right=True,
    sort=lambda case: case.blocks,
)
_BASELINE: Column[CaseView] = falling(
    "baseline", lambda case: line(format_seconds(case.baseline_s)), lambda case: case.baseline_s, width=9, rank=5
)
_CANDIDATE: Column[CaseView] = falling(
    "candidate", lambda case: line(format_seconds(case.candidate_s)), lambda case: case.candidate_s, width=9, rank=4
)
_EFFECT: Column[CaseView] = falling(
    "effect", lambda case: (effect_span(case),), lambda case: case.log_ratio, width=9, rank=1
)
_INTERVAL: Column[CaseView] = Column(
    id="bounds",
    head=titled("95 % interval"),
    draw=lambda case, _: interval_line(case),
    width=16,
    rank=4,
    is_picture=True,
)
_NOISE: Column[CaseView] = falling(
    "noise", lambda case: line(format_ratio(case.noise_ratio)), lambda case: case.noise_ratio, width=8, rank=6
)
_VERDICT: Column[CaseView] = Column(
    id="verdict",
    head=titled("verdict"),
    draw=_verdict_cell,
    width=16,
    sort=lambda case: (urgency(case), descending(case.log_ratio)),
    is_falling=True,
)


def summary_lines(case: CaseView) -> list[Line]:
    """All numbers of a case: what columns that were left out would have said."""
    if case.candidate_s is None and case.baseline_s is None:
        return [line(Span("not measured", Role.MUTED))]
    arms = (
        f"baseline {format_seconds(case.baseline_s)} → candidate {format_seconds(case.candidate_s)}"
        if case.baseline_s is not None
        else f"median {format_seconds(case.candidate_s)}"
    )
    provisional = " so far" if case.outcome is None else ""
    effect = f"effect{provisional} {effect_text(case)}" if case.log_ratio is not None else "no effect yet"
    blocks = format_count(case.blocks, "block") + (f" and {case.voided} voided" if case.voided else "")
    samples = format_count(case.samples, "sample")
    return [
        line(f"{arms}, {effect}"),
        line(Span(f"{blocks}, {samples} per arm, noise {format_ratio(case.noise_ratio)}", Role.MUTED)),
    ]
