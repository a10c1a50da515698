"""Whether the shape of each of the paper's results holds here: facts with codes and numbers, from evidence alone.

A claim about shares of one profile is decided by its numbers. A claim about times is decided by an interval over fresh
processes: it holds where the whole interval lies beyond the limit, fails where it lies on the other side, and is open
where the interval holds the limit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from perfguard.profile.op_times.breakdown import MKL_GEMM
from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Value, fact
from perfguard.stats.paired import estimate_paired
from perfguard.study.evidence import (
    DTYPES,
    KernelBlock,
    KernelPair,
    ModelDonut,
    RankCell,
    StudyEvidence,
    ToggleCompared,
)
from perfguard.study.items import KERNEL_VARIANTS, TOGGLES
from perfguard.study.measured import LEVEL
from perfguard.study.paper import Convergence, Paper, PaperCase

PRODUCTS_SHARE = 0.8  # The paper's Transformer: "mostly inner product and matmul", 90 % of its donut
TOTAL_GAIN = 2.0  # The paper's headline for its kernel, and for RetinaNet
HALF = math.sqrt(2.0)
"""From here on a factor is nearer to 2 than to 1 on the log scale: what "almost half the time" asks for."""
_PRODUCTS = ("inner_product", "matmul", MKL_GEMM)
_NORMS = ("norm", "batch_normalization")  # Torch's own batch norm, and oneDNN's
_CONVOLUTIONS = "convolution"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One claim, judged."""

    figure: Figure
    outcome: ShapeOutcome
    claim: Fact  # What is claimed, with the numbers of both sides
    reasons: tuple[Fact, ...] = ()  # Why it does not hold or was not measured, as far as the evidence says


def shapes_of(evidence: StudyEvidence, paper: Paper) -> tuple[Shape, ...]:
    """Every claim of the study, by figure in the order of the report."""
    return (
        *_donuts(evidence, paper),
        *_phases(evidence, paper),
        *_kernels(evidence, paper),
        *(case_shape(case, evidence) for case in paper.cases),
        _ranks(evidence.ranks, evidence),
        *map(_convergence, paper.convergence),
    )


def _missing(figure: Figure, claim: Fact, evidence: StudyEvidence, item: str) -> Shape:
    reason = evidence.problems.get(item) or fact("study.part_not_asked", item=item)
    return Shape(figure=figure, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))


def _decided(holds: bool) -> ShapeOutcome:  # noqa: FBT001 - a value
    return ShapeOutcome.HOLDS if holds else ShapeOutcome.FAILS


# Fig. 2


def _donuts(evidence: StudyEvidence, paper: Paper) -> tuple[Shape, ...]:
    return (
        _backward_exceeds(evidence, paper, "resnet18", (_CONVOLUTIONS,)),
        _backward_exceeds(evidence, paper, "lstm", ()),
        _recurrent(evidence, paper),
        _products(evidence, paper),
        _backward_exceeds(evidence, paper, "retinanet", (_CONVOLUTIONS,)),
        _no_norm(evidence),
    )


def _backward_exceeds(evidence: StudyEvidence, paper: Paper, model: str, names: tuple[str, ...]) -> Shape:
    """Libraries work longer in backward than in forward, in calls of these names (all, without one)."""
    donut, published = evidence.donut(model), paper.donut(model)
    paper_names = names or ("rnn",)
    values: dict[str, Value] = {
        "model": model,
        "kind": ", ".join(names) or "all library calls",
        "paper_backward_share": published.share(*paper_names, direction="BWD"),
        "paper_forward_share": published.share(*paper_names, direction="FWD"),
    }
    if donut is None or not donut.slices:
        claim = fact("study.backward_exceeds_forward", {**values, "backward_share": None, "forward_share": None})
        return _without_calls(Figure.DONUTS, claim, evidence, donut, model)
    backward = donut.share(*names, direction="BWD") + donut.share(*names, direction="backward")
    forward = donut.share(*names, direction="FWD") + donut.share(*names, direction="forward")
    claim = fact("study.backward_exceeds_forward", {**values, "backward_share": backward, "forward_share": forward})
    return Shape(
        figure=Figure.DONUTS,
        outcome=_decided(backward > forward),
        claim=claim,
        reasons=_gemm_reason(donut) if names else (),
    )


def _without_calls(figure: Figure, claim: Fact, evidence: StudyEvidence, donut: ModelDonut | None, model: str) -> Shape:
    if donut is None:
        return _missing(figure, claim, evidence, f"donuts-{model}")
    reason = fact("study.no_library_calls", model=model)
    return Shape(figure=figure, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))


def _gemm_reason(donut: ModelDonut) -> tuple[Fact, ...]:
    share = donut.share(MKL_GEMM)
    return (fact("study.products_in_mkl", model=donut.model, gemm_share=share),) if share else ()


def _recurrent(evidence: StudyEvidence, paper: Paper) -> Shape:
    """The LSTM is oneDNN's `rnn` primitive, above all."""
    donut, published = evidence.donut("lstm"), paper.donut("lstm").share("rnn")
    share = donut.share("rnn") if donut is not None else None
    claim = fact("study.recurrent_primitive", rnn_share=share, paper_rnn_share=published)
    if donut is None:
        return _missing(Figure.DONUTS, claim, evidence, "donuts-lstm")
    holds = share is not None and share > 0.5
    gemm = donut.share(MKL_GEMM)
    reason = fact("study.decoder_products", gemm_share=gemm) if share else fact("study.native_lstm", gemm_share=gemm)
    return Shape(figure=Figure.DONUTS, outcome=_decided(holds), claim=claim, reasons=() if holds else (reason,))


def _products(evidence: StudyEvidence, paper: Paper) -> Shape:
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
    return Shape(
        figure=Figure.DONUTS, outcome=_decided(share >= PRODUCTS_SHARE), claim=claim, reasons=_gemm_reason(donut)
    )


def _no_norm(evidence: StudyEvidence) -> Shape:
    """RetinaNet's step has no batch-norm kernel, because its batch norms are frozen; that of ResNet-18 has."""
    donut, other = evidence.donut("retinanet"), evidence.donut("resnet18")
    share = norm_share(donut) if donut is not None else None
    values: dict[str, Value] = {"norm_share": share, "other_share": norm_share(other) if other is not None else None}
    claim = fact("study.no_batch_norm", values)
    if share is None:
        return _missing(Figure.DONUTS, claim, evidence, "donuts-retinanet")
    return Shape(figure=Figure.DONUTS, outcome=_decided(share == 0), claim=claim)


def norm_share(donut: ModelDonut) -> float:
    """Of the whole step, in kernels that normalise, torch's own or oneDNN's."""
    return math.fsum(s.share for s in donut.breakdown.slices if s.name in _NORMS)


# Times


def _beyond(ratio: Estimate, limit: float) -> ShapeOutcome:
    """Whether a ratio is larger than a limit, by its interval."""
    if ratio.interval.lower > math.log(limit):
        return ShapeOutcome.HOLDS
    return ShapeOutcome.FAILS if ratio.interval.upper < math.log(limit) else ShapeOutcome.OPEN


def _factor(ratio: Estimate) -> dict[str, Value]:
    """A ratio with its interval, as values of a fact."""
    ends = (ratio.interval.lower, ratio.interval.upper)
    lower, upper = (math.exp(end) if math.isfinite(end) else None for end in ends)
    return {"factor": math.exp(ratio.log_ratio), "lower": lower, "upper": upper}


def _phases(evidence: StudyEvidence, paper: Paper) -> tuple[Shape, ...]:
    found = evidence.classes
    known: dict[str, Value] = {"paper_factor": paper.phases["loss"]}
    if found is None:
        grows = fact("study.loss_superlinear", known, factor=None, lower=None, upper=None, classes_factor=None)
        most = fact("study.loss_grows_most", factor=None, phase=None, phase_factor=None)
        return tuple(_missing(Figure.PHASES, claim, evidence, "phases-classes") for claim in (grows, most))
    ratios = {phase.phase: phase.ratio for phase in found.phases}
    loss, classes = ratios["loss"], found.many / found.few
    next_phase = max((name for name in ratios if name != "loss"), key=lambda name: ratios[name].log_ratio)
    next_ratio = ratios[next_phase]
    grows = fact("study.loss_superlinear", {**known, **_factor(loss)}, classes_factor=classes)
    values = {"factor": math.exp(loss.log_ratio), "phase_factor": math.exp(next_ratio.log_ratio)}
    outcome = _beyond(loss, classes)
    return (
        Shape(
            figure=Figure.PHASES,
            outcome=outcome,
            claim=grows,
            reasons=(fact("study.loss_per_logit"),) if outcome is ShapeOutcome.FAILS else (),
        ),
        Shape(
            figure=Figure.PHASES,
            outcome=_apart(loss, next_ratio),
            claim=fact("study.loss_grows_most", values, phase=next_phase),
        ),
    )


def _apart(larger: Estimate, smaller: Estimate) -> ShapeOutcome:
    """Whether one ratio is larger than another, by intervals that do not meet."""
    if larger.interval.lower > smaller.interval.upper:
        return ShapeOutcome.HOLDS
    return ShapeOutcome.FAILS if larger.interval.upper < smaller.interval.lower else ShapeOutcome.OPEN


# Fig. 6

Times = Callable[[KernelBlock], float]  # Seconds of a block


def reference_forward(block: KernelBlock) -> float:
    """Seconds of the default's forward."""
    return block.reference_forward_s


def reference_backward(block: KernelBlock) -> float:
    """Seconds of the default's backward: both less forward."""
    return block.reference_both_s - block.reference_forward_s


def variant_forward(block: KernelBlock) -> float:
    """Seconds of the variant's forward."""
    return block.variant_forward_s


def variant_backward(block: KernelBlock) -> float:
    """Seconds of the variant's backward: both less forward."""
    return block.variant_both_s - block.variant_forward_s


def reference_both(block: KernelBlock) -> float:
    """Seconds of the default's forward and backward."""
    return block.reference_both_s


def variant_both(block: KernelBlock) -> float:
    """Seconds of the variant's forward and backward."""
    return block.variant_both_s


def kernel_ratio(blocks: Iterable[KernelBlock], above: Times, below: Times) -> Estimate | None:
    """How many times as long one takes as another, over blocks; None where no block has both."""
    pairs = [(above(block), below(block)) for block in blocks]
    logs = [math.log(a / b) for a, b in pairs if a > 0 and b > 0]
    return estimate_paired(logs, LEVEL) if logs else None


def _of_dtype(pair: KernelPair | None, dtype: str) -> list[KernelBlock]:
    return [block for block in pair.blocks if block.dtype == dtype] if pair is not None else []


def _kernels(evidence: StudyEvidence, paper: Paper) -> tuple[Shape, ...]:
    explicit, implicit = evidence.kernel("explicit"), evidence.kernel("implicit")
    shapes: list[Shape] = []
    for dtype in DTYPES:
        of_default, of_explicit = paper.kernel("reference").times(dtype), paper.kernel("explicit").times(dtype)
        of_implicit = paper.kernel("implicit").times(dtype)
        total = kernel_ratio(_of_dtype(explicit, dtype), reference_both, variant_both)
        values: dict[str, Value] = {"dtype": dtype, "paper_factor": of_default.total / of_explicit.total}
        claim = fact("study.explicit_total", {**values, **_or_none(total)}, least_factor=TOTAL_GAIN)
        shapes.append(_timed(claim, total, TOTAL_GAIN, evidence, "kernels-explicit"))
        slower = kernel_ratio(_of_dtype(implicit, dtype), variant_backward, reference_backward)
        values = {"dtype": dtype, "paper_factor": of_implicit.backward / of_default.backward}
        claim = fact("study.implicit_backward_slower", {**values, **_or_none(slower)})
        shapes.append(_timed(claim, slower, 1.0, evidence, "kernels-implicit"))
    shapes.append(_halved(explicit or implicit, evidence, paper))
    return tuple(shapes)


def _halved(pair: KernelPair | None, evidence: StudyEvidence, paper: Paper) -> Shape:
    """The default in BF16 takes about half of its float32 time, where the CPU has BF16."""
    of_default = paper.kernel("reference")
    known: dict[str, Value] = {"paper_factor": of_default.fp32.total / of_default.bf16.total}
    by_dtype = {dtype: {block.block: block for block in _of_dtype(pair, dtype)} for dtype in DTYPES}
    logs = [
        math.log(block.reference_both_s / by_dtype["bf16"][number].reference_both_s)
        for number, block in by_dtype["fp32"].items()
        if number in by_dtype["bf16"]
    ]
    ratio = estimate_paired(logs, LEVEL) if logs else None
    claim = fact("study.bf16_halves", {**known, **_or_none(ratio)}, least_factor=HALF)
    found = _timed(claim, ratio, HALF, evidence, "kernels-explicit")
    if found.outcome in (ShapeOutcome.FAILS, ShapeOutcome.OPEN):
        why = fact("study.bf16_element_wise") if evidence.machine.has_bf16 else fact("study.no_bf16")
        return Shape(figure=found.figure, outcome=found.outcome, claim=claim, reasons=(why,))
    return found


def _or_none(ratio: Estimate | None) -> dict[str, Value]:
    return {"factor": None, "lower": None, "upper": None} if ratio is None else _factor(ratio)


def _timed(claim: Fact, ratio: Estimate | None, limit: float, evidence: StudyEvidence, item: str) -> Shape:
    if ratio is not None:
        return Shape(figure=Figure.KERNELS, outcome=_beyond(ratio, limit), claim=claim)
    variant = item.partition("-")[2]
    if any(kernel.variant == variant and kernel.is_different for kernel in evidence.kernels):
        reason = fact("study.different_results", name=variant)
        return Shape(figure=Figure.KERNELS, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))
    return _missing(Figure.KERNELS, claim, evidence, item)


# Case studies

_NEEDS = {"norm": fact("study.needs_ipex"), "dataloader": fact("study.needs_images")}
"""Case studies that nothing here measures, and what they would need."""


def case_shape(case: PaperCase, evidence: StudyEvidence) -> Shape:
    """Whether a case study's optimization is faster here; that of all together, at least twice as fast."""
    if case.name in _OF_OTHER_PARTS:
        return _OF_OTHER_PARTS[case.name](case, evidence)
    claim = fact("study.gain", name=case.name, paper_factor=case.gain, factor=None, lower=None, upper=None)
    if case.name in _NEEDS:
        reasons = (_NEEDS[case.name],)
        return Shape(figure=Figure.CASES, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=reasons)
    found = evidence.toggle(case.name)
    if found is None:
        return _missing(Figure.CASES, claim, evidence, f"cases-{case.name}")
    return _toggled(found, claim, evidence)


def _toggled(found: ToggleCompared, claim: Fact, evidence: StudyEvidence) -> Shape:
    if found.is_different:
        reason = fact("study.different_results", name=found.name)
        return Shape(figure=Figure.CASES, outcome=ShapeOutcome.FAILS, claim=claim, reasons=(reason,))
    gain = gain_of(found.name, evidence)
    if gain is None:
        return Shape(figure=Figure.CASES, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=found.reasons)
    claim = fact("study.gain", {**claim.values, **_factor(gain)})
    if found.name == "loss":  # the paper keeps the loss in float32 for its value, whatever it costs
        return Shape(figure=Figure.CASES, outcome=ShapeOutcome.HOLDS, claim=claim, reasons=(fact("study.loss_kept"),))
    outcome = _beyond(gain, TOTAL_GAIN if found.name == "overall" else 1.0)
    fails = outcome is not ShapeOutcome.HOLDS
    why = (fact("study.no_bf16"),) if fails and "bf16" in found.candidate and not evidence.machine.has_bf16 else ()
    return Shape(figure=Figure.CASES, outcome=outcome, claim=claim, reasons=why)


def _dataset(_: PaperCase, evidence: StudyEvidence) -> Shape:
    """A third of backward is spent in the loss with many classes."""
    found = evidence.classes
    share = found.loss_backward_share if found is not None else None
    claim = fact("study.loss_backward", loss_share=share, paper_loss_share=1 / 3)
    if share is None:
        return _missing(Figure.CASES, claim, evidence, "phases-classes")
    holds = share >= 1 / 3
    why = () if holds else (fact("study.faster_focal_loss"),)
    return Shape(figure=Figure.CASES, outcome=_decided(holds), claim=claim, reasons=why)


def _focal(case: PaperCase, evidence: StudyEvidence) -> Shape:
    ratio = gain_of(case.name, evidence)
    claim = fact("study.gain", {"name": case.name, "paper_factor": case.gain, **_or_none(ratio)})
    found = _timed(claim, ratio, 1.0, evidence, "kernels-explicit")
    return Shape(figure=Figure.CASES, outcome=found.outcome, claim=claim, reasons=found.reasons)


def gain_of(name: str, evidence: StudyEvidence) -> Estimate | None:
    """How many times as fast a case study's optimization is; None where no ratio is known, or the results differ."""
    if name == "focal":
        return kernel_ratio(_of_dtype(evidence.kernel("explicit"), "bf16"), reference_both, variant_both)
    found = evidence.toggle(name)
    if found is None or found.effect is None or found.is_different:
        return None
    return inverse(found.effect)


_OF_OTHER_PARTS: Mapping[str, Callable[[PaperCase, StudyEvidence], Shape]] = {"dataset": _dataset, "focal": _focal}
"""Case studies whose evidence is that of a figure."""


def inverse(effect: Estimate) -> Estimate:
    """Baseline over candidate: how many times as fast."""
    ends = effect.interval
    interval = type(ends)(lower=-ends.upper, upper=-ends.lower, level=ends.level)
    return Estimate(
        log_ratio=-effect.log_ratio,
        standard_error=effect.standard_error,
        block_sd=effect.block_sd,
        blocks=effect.blocks,
        degrees_of_freedom=effect.degrees_of_freedom,
        interval=interval,
    )


# Table 2 and Fig. 7


def _ranks(cells: Sequence[RankCell], evidence: StudyEvidence) -> Shape:
    """With equally many cores, more ranks of fewer threads are faster: for every two neighbouring cells."""
    by_cores: dict[int, list[RankCell]] = {}
    for cell in cells:
        by_cores.setdefault(cell.threads * cell.ranks, []).append(cell)
    compared = [sorted(group, key=lambda cell: cell.ranks) for group in by_cores.values() if len(group) > 1]
    pairs = [pair for group in compared for pair in itertools.pairwise(group)]
    won = sum(more.throughput_per_s > fewer.throughput_per_s for fewer, more in pairs)
    claim = fact("study.ranks_win", pairs=len(pairs), won=won)
    if not pairs:
        reason = fact("study.needs_ranks", cpus=len(evidence.machine.cpus))
        return Shape(figure=Figure.RANKS, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))
    return Shape(figure=Figure.RANKS, outcome=_decided(won == len(pairs)), claim=claim)


def _convergence(points: Convergence) -> Shape:
    """A larger batch needs more epochs: the fitted line rises, and the largest batch needs the most."""
    slope, _ = fitted(points)
    largest = points.ratio[-1]
    claim = fact(
        "study.convergence",
        benchmark=points.benchmark,
        batch_factor=points.batch[-1] / points.batch[0],
        factor=largest,
        slope=slope,
    )
    return Shape(figure=Figure.CONVERGENCE, outcome=_decided(slope > 0 and largest == max(points.ratio)), claim=claim)


def fitted(points: Convergence) -> tuple[float, float]:
    """Slope and intercept of the least-squares line of ratio over normalised batch size."""
    x = np.array(points.batch) / points.batch[0]
    slope, intercept = np.polyfit(x, np.array(points.ratio), 1)
    return float(slope), float(intercept)


MEASURED_CASES = tuple(toggle.name for toggle in TOGGLES)
"""Case studies of the paper that have a toggle here."""
VARIANTS = ("reference", *KERNEL_VARIANTS)  # Of Fig. 6, the default first
