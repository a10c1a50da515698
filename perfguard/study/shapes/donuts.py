"""Fig. 2: where the time of a step is, by the time that oneDNN and MKL report."""

from __future__ import annotations

import math

from perfguard.profile.op_times.breakdown import MKL_GEMM
from perfguard.records.facts import Fact, Value, fact
from perfguard.study.evidence import ModelDonut, StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.shape import Figure, JudgedClaim, ShapeOutcome, decided, missing

PRODUCTS_SHARE = 0.8  # The paper's Transformer: "mostly inner product and matmul", 90 % of its donut
_PRODUCTS = ("inner_product", "matmul", MKL_GEMM)
_NORMS = ("norm", "batch_normalization")  # Torch's own batch norm, and oneDNN's
_CONVOLUTION = "convolution"


def donut_shapes(evidence: StudyEvidence, paper: Paper) -> tuple[JudgedClaim, ...]:
    """Backward exceeds forward, one kind of work dominates, and frozen batch norm has no kernel."""
    return (
        _backward_exceeds(evidence, paper, "resnet18", (_CONVOLUTION,)),
        _backward_exceeds(evidence, paper, "lstm", ()),
        _recurrent(evidence, paper),
        _products(evidence, paper),
        _backward_exceeds(evidence, paper, "retinanet", (_CONVOLUTION,)),
        _no_norm(evidence),
    )


def _backward_exceeds(evidence: StudyEvidence, paper: Paper, model: str, names: tuple[str, ...]) -> JudgedClaim:
    """Libraries work longer in backward than in forward, in calls of these names (all, without one)."""
    donut, published = evidence.donut(model), paper.donut(model)
    paper_names = names or ("rnn",)
    values: dict[str, Value] = {
        "model": published.label,
        "primitive": names[0] if names else None,
        "paper_backward_share": published.share(*paper_names, direction="BWD"),
        "paper_forward_share": published.share(*paper_names, direction="FWD"),
    }
    if donut is None or not donut.slices:
        claim = fact("study.backward_exceeds_forward", {**values, "backward_share": None, "forward_share": None})
        return _without_calls(Figure.DONUTS, claim, evidence, donut, model)
    backward = donut.share(*names, direction="BWD") + donut.share(*names, direction="backward")
    forward = donut.share(*names, direction="FWD") + donut.share(*names, direction="forward")
    claim = fact("study.backward_exceeds_forward", {**values, "backward_share": backward, "forward_share": forward})
    return JudgedClaim(
        figure=Figure.DONUTS,
        outcome=decided(backward > forward),
        claim=claim,
        reasons=_gemm_reason(donut, names) if names else (),
    )


def _without_calls(
    figure: Figure, claim: Fact, evidence: StudyEvidence, donut: ModelDonut | None, model: str
) -> JudgedClaim:
    if donut is None:
        return missing(figure, claim, evidence, f"donuts-{model}")
    reason = fact("study.no_library_calls", model=model)
    return JudgedClaim(figure=figure, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))


def _gemm_reason(donut: ModelDonut, names: tuple[str, ...]) -> tuple[Fact, ...]:
    """Said where MKL takes more time than one of the slices that the claim is about."""
    share = donut.share(MKL_GEMM)
    smallest = min((s.share for s in donut.slices if s.name in names), default=0.0)
    return (fact("study.products_in_mkl", gemm_share=share),) if share > smallest else ()


def _recurrent(evidence: StudyEvidence, paper: Paper) -> JudgedClaim:
    """The LSTM is oneDNN's `rnn` primitive, above all."""
    donut, published = evidence.donut("lstm"), paper.donut("lstm").share("rnn")
    share = donut.share("rnn") if donut is not None else None
    claim = fact("study.recurrent_primitive", rnn_share=share, paper_rnn_share=published)
    if donut is None or not donut.slices:
        return _without_calls(Figure.DONUTS, claim, evidence, donut, "lstm")
    holds = share is not None and share > 0.5
    gemm = donut.share(MKL_GEMM)
    reason = fact("study.decoder_products", gemm_share=gemm) if share else fact("study.native_lstm", gemm_share=gemm)
    return JudgedClaim(figure=Figure.DONUTS, outcome=decided(holds), claim=claim, reasons=() if holds else (reason,))


def _products(evidence: StudyEvidence, paper: Paper) -> JudgedClaim:
    """The Transformer is matrix products, above all."""
    donut = evidence.donut("transformer")
    share = donut.share(*_PRODUCTS) if donut is not None and donut.slices else None
    claim = fact(
        "study.products_dominate",
        products_share=share,
        paper_products_share=paper.donut("transformer").share("inner_product", "matmul"),
        least_share=PRODUCTS_SHARE,
    )
    if donut is None or share is None:
        return _without_calls(Figure.DONUTS, claim, evidence, donut, "transformer")
    return JudgedClaim(
        figure=Figure.DONUTS,
        outcome=decided(share >= PRODUCTS_SHARE),
        claim=claim,
        reasons=_gemm_reason(donut, _PRODUCTS),
    )


def _no_norm(evidence: StudyEvidence) -> JudgedClaim:
    """RetinaNet's step has no batch-norm kernel, because its batch norms are frozen; that of ResNet-18 has."""
    donut, other = evidence.donut("retinanet"), evidence.donut("resnet18")
    share = norm_share(donut) if donut is not None else None
    values: dict[str, Value] = {"norm_share": share, "other_share": norm_share(other) if other is not None else None}
    claim = fact("study.no_batch_norm", values)
    if share is None:
        return missing(Figure.DONUTS, claim, evidence, "donuts-retinanet")
    return JudgedClaim(figure=Figure.DONUTS, outcome=decided(share == 0), claim=claim)


def norm_share(donut: ModelDonut) -> float:
    """Of the whole step, in kernels that normalise, torch's own or oneDNN's."""
    return math.fsum(s.share for s in donut.breakdown.slices if s.name in _NORMS)
