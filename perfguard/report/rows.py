"""Rows of cases and ops, computed once: what tables, comments and pages draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from perfguard.records.case_names import short_names
from perfguard.records.estimate import Estimate
from perfguard.records.result import CaseMeasured
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import PYTHON_OP, OpDelta, OpKey, OpTotal
from perfguard.records.steps.profile import Slice
from perfguard.records.verdict import GateOutcome, Outcome, Verdict
from perfguard.report.messages.catalog import describe
from perfguard.report.op_tree import calls_text, tensors_of
from perfguard.report.shown import Mark, Number
from perfguard.units import (
    format_effect,
    format_number,
    format_ratio,
    format_seconds,
    format_seconds_interval,
    format_signed_seconds,
)

_MOST_LOG_RATIO = 100.0  # Recordings may hold any number

MARKS = {
    outcome: Mark(sign, outcome.value.replace("-", " "), class_, style)
    for outcome, sign, class_, style in (
        (Outcome.REGRESSED, "▲", "slower", "bold red"),
        (Outcome.FAILED, "✗", "broken", "bold red"),
        (Outcome.INVALID, "✗", "broken", "bold red"),
        (Outcome.DIFFERENT, "!", "broken", "bold yellow"),
        (Outcome.ALLOWED, "△", "slower", "yellow"),
        (Outcome.INCONCLUSIVE, "?", "open", "yellow"),
        (Outcome.INCOMPARABLE, "≠", "open", "yellow"),
        (Outcome.NO_BASELINE, "∅", "open", "yellow"),
        (Outcome.IMPROVED, "▼", "faster", "bold green"),
        (Outcome.UNCHANGED, "=", "same", "green"),
        (Outcome.UNTOUCHED, "≡", "same", "green"),
        (Outcome.SAME_CODE, "≡", "same", "green"),
    )
}
"""What needs a look first."""
PLAIN = (Outcome.UNCHANGED, Outcome.UNTOUCHED, Outcome.SAME_CODE)  # Outcomes whose reason the table shows already
_RUNS = {
    word: Mark(sign, word, class_)
    for word, sign, class_ in (
        (GateOutcome.PASS.value, "✓", "same"),
        (GateOutcome.HOST_UNSTABLE.value, "?", "open"),
        ("measured", "·", "same"),
        ("profiled", "·", "same"),
        ("interrupted", "■", "open"),
    )
} | {outcome.value: mark for outcome, mark in MARKS.items()}


def mark_of_run(verdict: str) -> Mark:
    """How a GateOutcome, `measured`, `profiled` or `interrupted` is shown; other words stay as they are."""
    return _RUNS.get(verdict, Mark("?", verdict, "open"))


class CaseRow(Struct, frozen=True, kw_only=True):
    """A compared case."""

    verdict: Verdict
    name: str  # The shortest one that distinguishes it
    mark: Mark
    advisory: str  # ` (advisory)` where it cannot fail the gate; else empty
    baseline: Number
    candidate: Number  # By the effect: medians of both arms also hold what drifted between the blocks
    effect: Number
    interval: Number  # 95 %, sorted by its lower end
    blocks: Number
    block_sd: Number
    p: Number
    detectable: Number

    @property
    def outcome(self) -> str:
        """Sign, word and whether it counts."""
        return f"{self.mark.sign} {self.mark.word}{self.advisory}"

    @property
    def times(self) -> str:
        """`1.2 ms → 2.4 ms`."""
        return f"{self.baseline.text} → {self.candidate.text}"

    @property
    def effect_text(self) -> str:
        """`+2.41 % [+1.2 %, +3.4 %]`; empty where nothing was estimated."""
        return f"{self.effect.text} {self.interval.text}" if self.verdict.effect else ""


def case_rows(verdicts: Iterable[Verdict], names: Mapping[str, str] | None = None) -> list[CaseRow]:
    """A row for each verdict; without `names`, the shortest ones that distinguish these cases."""
    verdicts = tuple(verdicts)
    known = names if names is not None else short_names(verdict.case_id for verdict in verdicts)
    return [_case_row(verdict, known[verdict.case_id]) for verdict in verdicts]


def _case_row(verdict: Verdict, name: str) -> CaseRow:
    comparison, estimate = verdict.comparison, verdict.effect
    return CaseRow(
        verdict=verdict,
        name=name,
        mark=MARKS[verdict.outcome],
        advisory=" (advisory)" if verdict.gating is Gating.ADVISORY else "",
        baseline=Number.of(format_seconds, comparison.baseline_median_s),
        candidate=Number.of(format_seconds, _candidate_s(verdict)),
        effect=Number.of(format_effect, estimate.log_ratio if estimate else None),
        interval=Number(format_interval(estimate), estimate.interval.lower if estimate else None),
        blocks=Number.whole(estimate.blocks if estimate else None),
        block_sd=Number.of(format_ratio, estimate.block_sd if estimate else None),
        p=Number.p(verdict.p_adjusted),
        detectable=Number.of(format_ratio, verdict.mde_ratio),
    )


def _candidate_s(verdict: Verdict) -> float | None:
    """The baseline's time and the effect, so that the two times and the effect agree; a median without an effect."""
    comparison, estimate = verdict.comparison, verdict.effect
    if estimate is None or comparison.baseline_median_s is None or not abs(estimate.log_ratio) < _MOST_LOG_RATIO:
        return comparison.candidate_median_s
    return comparison.baseline_median_s * math.exp(estimate.log_ratio)


def format_interval(estimate: Estimate | None) -> str:
    """`[+1.2 %, +3.4 %]`; `-` where it is unknown."""
    if estimate is None or not math.isfinite(estimate.interval.lower):
        return "-"
    return f"[{format_effect(estimate.interval.lower)}, {format_effect(estimate.interval.upper)}]"


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """A case of one arm."""

    case_id: str
    name: str
    median: Number
    rounds: Number
    between: Number  # Spread between rounds
    within: Number  # Spread within a round
    loops: Number
    problem: str  # Why nothing was measured; else empty


def measured_rows(measured: Iterable[CaseMeasured]) -> list[MeasuredRow]:
    """A row for each case."""
    measured = tuple(measured)
    names = short_names(case.case_id for case in measured)
    return [
        MeasuredRow(
            case_id=case.case_id,
            name=names[case.case_id],
            median=Number.of(format_seconds, case.median_s),
            rounds=Number.whole(case.rounds),
            between=Number.of(format_ratio, case.between_sd_ratio),
            within=Number.of(format_ratio, case.within_sd_ratio),
            loops=Number(str(case.inner_loops or "-"), float(case.inner_loops or 0)),
            problem=describe(case.problem) if case.problem else "",
        )
        for case in measured
    ]


class OpNames(NamedTuple):
    """What an op is called; `-` where the trace says nothing."""

    op: str
    phase: str
    module: str
    tensors: str  # Shapes, dtypes and layouts


def op_names(key: OpKey) -> OpNames:
    """The names of an op, without `aten::`."""
    return OpNames(key.op.removeprefix("aten::"), key.phase.value, key.module or "-", tensors_of(key) or "-")


class DeltaRow(Struct, frozen=True, kw_only=True):
    """An op in both arms."""

    delta: OpDelta
    names: OpNames
    calls: Number
    baseline: Number
    candidate: Number
    difference: Number
    interval: str
    change: str
    source: str


def change_word(delta: OpDelta) -> str:
    """What happened to the op; of Python time, which has no calls, `slower` and `faster` alone."""
    word = delta.change.value
    return word.removesuffix(" per call") if delta.key.op == PYTHON_OP else word


def delta_row(delta: OpDelta) -> DeltaRow:
    """The row of an op."""
    return DeltaRow(
        delta=delta,
        names=op_names(delta.key),
        calls=Number(calls_text(delta), delta.candidate_calls),
        baseline=Number.of(format_seconds, delta.baseline_s),
        candidate=Number.of(format_seconds, delta.candidate_s),
        difference=Number.of(format_signed_seconds, delta.delta_s),
        interval=format_seconds_interval(delta.lower_s, delta.upper_s) or "-",
        change=change_word(delta),
        source=delta.source or "-",
    )


def total_row(total: OpTotal, step_s: float) -> tuple[Number, Number, Number]:
    """An op's time in a step, its share and its calls."""
    share = percentage(total.self_s / step_s) if step_s > 0 else "-"
    return (
        Number.of(format_seconds, total.self_s),
        Number(share, total.self_s),
        Number(format_number(total.calls), total.calls),
    )


def slice_row(piece: Slice) -> tuple[str, str, Number, Number, Number]:
    """A kind of work: its direction, calls, time and share."""
    return (
        piece.name,
        piece.direction or "-",
        Number(format_number(piece.calls), piece.calls),
        Number.of(format_seconds, piece.time_s),
        Number(percentage(piece.share), piece.share),
    )


def percentage(share: float) -> str:
    """`12.3 %`, with one digit whatever its size."""
    return f"{share * 100:.1f} %"
