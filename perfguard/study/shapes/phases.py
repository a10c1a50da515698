"""Fig. 4: what more classes cost, phase by phase."""

from __future__ import annotations

import math

from perfguard.records.facts import Value, fact
from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.shape import Figure, JudgedClaim, ShapeOutcome, apart, beyond, factors, missing


def phase_shapes(evidence: StudyEvidence, paper: Paper) -> tuple[JudgedClaim, ...]:
    """The loss grows faster than the number of classes, and more than every other phase."""
    found = evidence.classes
    known: dict[str, Value] = {"paper_factor": paper.phases["loss"]}
    if found is None:
        grows = fact("study.loss_superlinear", known, factor=None, lower=None, upper=None, classes_factor=None)
        most = fact("study.loss_grows_most", factor=None, phase=None, phase_factor=None)
        return tuple(missing(Figure.PHASES, claim, evidence, "phases-classes") for claim in (grows, most))
    ratios = {phase.phase: phase.ratio for phase in found.phases}
    loss, classes = ratios["loss"], found.many / found.few
    next_phase = max((name for name in ratios if name != "loss"), key=lambda name: ratios[name].log_ratio)
    next_ratio = ratios[next_phase]
    grows = fact("study.loss_superlinear", {**known, **factors(loss)}, classes_factor=classes)
    values = {"factor": math.exp(loss.log_ratio), "phase_factor": math.exp(next_ratio.log_ratio)}
    outcome = beyond(loss, classes)
    return (
        JudgedClaim(
            figure=Figure.PHASES,
            outcome=outcome,
            claim=grows,
            reasons=(fact("study.loss_per_logit"),) if outcome is ShapeOutcome.FAILS else (),
        ),
        JudgedClaim(
            figure=Figure.PHASES,
            outcome=apart(loss, next_ratio),
            claim=fact("study.loss_grows_most", values, phase=next_phase),
        ),
    )
