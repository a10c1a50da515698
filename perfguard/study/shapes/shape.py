"""A judged claim, and what decides one."""

from __future__ import annotations

import math
from enum import Enum

from msgspec import Struct

from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Value, fact
from perfguard.study.evidence import StudyEvidence

TOTAL_GAIN = 2.0  # The paper's headline for its kernel, and for RetinaNet


class ShapeOutcome(str, Enum):
    """Whether a result of the paper has the same shape here."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "open"
    NOT_MEASURED = "not measured"


class Figure(str, Enum):
    """Figures and tables of the paper, in the order of the report."""

    DONUTS = "fig2"
    PHASES = "fig4"
    KERNELS = "fig6"
    CASES = "cases"
    RANKS = "table2"
    CONVERGENCE = "fig7"


class JudgedClaim(Struct, frozen=True, kw_only=True):
    """One claim, judged."""

    figure: Figure
    outcome: ShapeOutcome
    claim: Fact  # What is claimed, with the numbers of both sides
    reasons: tuple[Fact, ...] = ()  # Why it does not hold or was not measured, as far as the evidence says


def missing(figure: Figure, claim: Fact, evidence: StudyEvidence, item: str) -> JudgedClaim:
    """A claim whose item was not measured, with the reason."""
    reason = evidence.problems.get(item) or fact("study.part_not_asked", item=item)
    return JudgedClaim(figure=figure, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))


def decided(holds: bool) -> ShapeOutcome:  # noqa: FBT001 - a value
    """Of a claim that numbers without an interval decide."""
    return ShapeOutcome.HOLDS if holds else ShapeOutcome.FAILS


def beyond(ratio: Estimate, limit: float) -> ShapeOutcome:
    """Whether a ratio is larger than a limit, by its interval."""
    if ratio.interval.lower > math.log(limit):
        return ShapeOutcome.HOLDS
    return ShapeOutcome.FAILS if ratio.interval.upper < math.log(limit) else ShapeOutcome.OPEN


def factors(ratio: Estimate) -> dict[str, Value]:
    """A ratio with its interval, as values of a fact."""
    ends = (ratio.interval.lower, ratio.interval.upper)
    lower, upper = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return {"factor": math.exp(ratio.log_ratio), "lower": lower, "upper": upper}


def apart(larger: Estimate, smaller: Estimate) -> ShapeOutcome:
    """Whether one ratio is larger than another, by intervals that do not meet."""
    if larger.interval.lower > smaller.interval.upper:
        return ShapeOutcome.HOLDS
    return ShapeOutcome.FAILS if larger.interval.upper < smaller.interval.lower else ShapeOutcome.OPEN


def factors_or_none(ratio: Estimate | None) -> dict[str, Value]:
    """The same values; all None where there is no ratio."""
    return {"factor": None, "lower": None, "upper": None} if ratio is None else factors(ratio)
