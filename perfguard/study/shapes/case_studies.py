"""The paper's case studies: how many times as fast each optimization is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Fact, fact
from perfguard.study.evidence import StudyEvidence, ToggleCompared
from perfguard.study.paper import PaperCase
from perfguard.study.shapes.kernels import (
    PASSES_OVER_MEMORY,
    blocks_of,
    kernel_ratio,
    reference_both,
    timed,
    variant_both,
)
from perfguard.study.shapes.shape import (
    TOTAL_GAIN,
    Figure,
    JudgedClaim,
    ShapeOutcome,
    beyond,
    decided,
    factors_or_none,
    missing,
)

_NEEDS = {"norm": fact("study.needs_ipex"), "dataloader": fact("study.needs_images")}
"""Case studies that nothing here measures, and what they would need."""
_WHY_NOT = {"overall": fact("study.small_images")}
"""Why an optimization may gain less here than in the paper."""
_LEAST = {"overall": TOTAL_GAIN}  # How many times as fast a case study is to be, where faster is not enough


def case_shape(case: PaperCase, evidence: StudyEvidence) -> JudgedClaim:
    """Whether a case study's optimization is faster here; that of all together, at least twice as fast."""
    if case.name in _OF_OTHER_PARTS:
        return _OF_OTHER_PARTS[case.name](case, evidence)
    claim = _gain_claim(case, gain_of(case.name, evidence))
    if case.name in _NEEDS:
        reasons = (_NEEDS[case.name],)
        return JudgedClaim(figure=Figure.CASES, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=reasons)
    found = evidence.toggle(case.name)
    if found is None:
        return missing(Figure.CASES, claim, evidence, f"cases-{case.name}")
    return _toggled(found, claim, evidence)


def _toggled(found: ToggleCompared, claim: Fact, evidence: StudyEvidence) -> JudgedClaim:
    if found.is_different:
        reason = fact("study.different_results", name=found.name)
        return JudgedClaim(figure=Figure.CASES, outcome=ShapeOutcome.FAILS, claim=claim, reasons=(reason,))
    gain = gain_of(found.name, evidence)
    if gain is None:
        return JudgedClaim(figure=Figure.CASES, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=found.reasons)
    if found.name == "loss":
        return JudgedClaim(
            figure=Figure.CASES, outcome=ShapeOutcome.OPEN, claim=claim, reasons=(fact("study.loss_kept"),)
        )
    outcome = beyond(gain, _LEAST.get(found.name, 1.0))
    fails = outcome is not ShapeOutcome.HOLDS
    without_bf16 = "bf16" in found.candidate and not evidence.machine.has_bf16
    why = fact("study.no_bf16") if without_bf16 else _WHY_NOT.get(found.name)
    return JudgedClaim(
        figure=Figure.CASES, outcome=outcome, claim=claim, reasons=(why,) if fails and why is not None else ()
    )


def _gain_claim(case: PaperCase, gain: Estimate | None) -> Fact:
    """That a case study's optimization is faster, by the least factor where one is asked for."""
    known = {"name": case.name, "paper_factor": case.gain, "least_factor": _LEAST.get(case.name)}
    return fact("study.gain", {**known, **factors_or_none(gain)})


def _dataset(_: PaperCase, evidence: StudyEvidence) -> JudgedClaim:
    """A third of backward is spent in the loss with many classes."""
    found = evidence.classes
    share = found.loss_backward_share if found is not None else None
    claim = fact("study.loss_backward", loss_share=share, paper_loss_share=1 / 3)
    if share is None:
        return missing(Figure.CASES, claim, evidence, "phases-classes")
    holds = share >= 1 / 3
    why = () if holds else (fact("study.faster_focal_loss"),)
    return JudgedClaim(figure=Figure.CASES, outcome=decided(holds), claim=claim, reasons=why)


def _focal(case: PaperCase, evidence: StudyEvidence) -> JudgedClaim:
    ratio = gain_of(case.name, evidence)
    claim = _gain_claim(case, ratio)
    found = timed(claim, ratio, 1.0, evidence, "kernels-explicit", why=PASSES_OVER_MEMORY)
    return JudgedClaim(figure=Figure.CASES, outcome=found.outcome, claim=claim, reasons=found.reasons)


def gain_of(name: str, evidence: StudyEvidence) -> Estimate | None:
    """How many times as fast a case study's optimization is; None where no ratio is known, or the results differ."""
    if name == "focal":
        return kernel_ratio(blocks_of(evidence.kernel("explicit"), "bf16"), reference_both, variant_both)
    found = evidence.toggle(name)
    if found is None or found.effect is None or found.is_different:
        return None
    return inverse(found.effect)


_OF_OTHER_PARTS: Mapping[str, Callable[[PaperCase, StudyEvidence], JudgedClaim]] = {
    "dataset": _dataset,
    "focal": _focal,
}
"""Case studies whose evidence is that of a figure."""


def inverse(effect: Estimate) -> Estimate:
    """Baseline over candidate: how many times as fast."""
    ends = effect.interval
    interval = Interval(lower=-ends.upper, upper=-ends.lower, level=ends.level)
    return Estimate(
        log_ratio=-effect.log_ratio,
        standard_error=effect.standard_error,
        block_sd=effect.block_sd,
        blocks=effect.blocks,
        degrees_of_freedom=effect.degrees_of_freedom,
        interval=interval,
    )
