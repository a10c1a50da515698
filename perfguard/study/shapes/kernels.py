"""Fig. 6: variants of the focal loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from perfguard.records.estimate import Estimate
from perfguard.records.facts import Fact, Value, fact
from perfguard.stats.paired import estimate_paired
from perfguard.study.evidence import DTYPES, KernelBlock, KernelPair, StudyEvidence
from perfguard.study.measured import LEVEL
from perfguard.study.paper import Paper
from perfguard.study.shapes.shape import TOTAL_GAIN, Figure, JudgedClaim, ShapeOutcome, beyond, factors_or_none, missing

HALF = math.sqrt(2.0)
"""From here on a factor is nearer to 2 than to 1 on the log scale: what "almost half the time" asks for."""

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


PASSES_OVER_MEMORY = fact("study.passes_over_memory")
"""Why an explicit formula is not fast."""


def kernel_ratio(blocks: Iterable[KernelBlock], above: Times, below: Times) -> Estimate | None:
    """How many times as long one takes as another, over blocks; None where no block has both."""
    pairs = [(above(block), below(block)) for block in blocks]
    logs = [math.log(a / b) for a, b in pairs if a > 0 and b > 0]
    return estimate_paired(logs, LEVEL) if logs else None


def blocks_of(pair: KernelPair | None, dtype: str) -> list[KernelBlock]:
    """A variant's blocks of one dtype."""
    return [block for block in pair.blocks if block.dtype == dtype] if pair is not None else []


def kernel_shapes(evidence: StudyEvidence, paper: Paper) -> tuple[JudgedClaim, ...]:
    """An explicit backward halves the time, an implicit one is slower than the default, BF16 takes about half."""
    explicit, implicit = evidence.kernel("explicit"), evidence.kernel("implicit")
    shapes: list[JudgedClaim] = []
    for dtype in DTYPES:
        of_default, of_explicit = paper.kernel("reference").times(dtype), paper.kernel("explicit").times(dtype)
        of_implicit = paper.kernel("implicit").times(dtype)
        total = kernel_ratio(blocks_of(explicit, dtype), reference_both, variant_both)
        values: dict[str, Value] = {"dtype": dtype, "paper_factor": of_default.total / of_explicit.total}
        least = min(TOTAL_GAIN, of_default.total / of_explicit.total)  # as read from its bars, the paper's is 1.99
        claim = fact("study.explicit_total", {**values, **factors_or_none(total)}, least_factor=least)
        shapes.append(timed(claim, total, least, evidence, "kernels-explicit", why=PASSES_OVER_MEMORY))
        slower = kernel_ratio(blocks_of(implicit, dtype), variant_backward, reference_backward)
        values = {"dtype": dtype, "paper_factor": of_implicit.backward / of_default.backward}
        claim = fact("study.implicit_backward_slower", {**values, **factors_or_none(slower)})
        shapes.append(timed(claim, slower, 1.0, evidence, "kernels-implicit"))
    shapes.append(_halved(explicit or implicit, evidence, paper))
    return tuple(shapes)


def _halved(pair: KernelPair | None, evidence: StudyEvidence, paper: Paper) -> JudgedClaim:
    """The default in BF16 takes about half of its float32 time, where the CPU has BF16."""
    of_default = paper.kernel("reference")
    known: dict[str, Value] = {"paper_factor": of_default.fp32.total / of_default.bf16.total}
    by_dtype = {dtype: {block.block: block for block in blocks_of(pair, dtype)} for dtype in DTYPES}
    logs = [
        math.log(block.reference_both_s / by_dtype["bf16"][number].reference_both_s)
        for number, block in by_dtype["fp32"].items()
        if number in by_dtype["bf16"]
    ]
    ratio = estimate_paired(logs, LEVEL) if logs else None
    claim = fact("study.bf16_halves", {**known, **factors_or_none(ratio)}, least_factor=HALF)
    found = timed(claim, ratio, HALF, evidence, "kernels-explicit")
    if found.outcome in (ShapeOutcome.FAILS, ShapeOutcome.OPEN):
        why = fact("study.bf16_element_wise") if evidence.machine.has_bf16 else fact("study.no_bf16")
        return JudgedClaim(figure=found.figure, outcome=found.outcome, claim=claim, reasons=(why,))
    return found


def timed(
    claim: Fact, ratio: Estimate | None, limit: float, evidence: StudyEvidence, item: str, *, why: Fact | None = None
) -> JudgedClaim:
    """A claim that a ratio of kernel times lies beyond a limit, and why if it does not."""
    if ratio is not None:
        outcome = beyond(ratio, limit)
        reasons = (why,) if why is not None and outcome is ShapeOutcome.FAILS else ()
        return JudgedClaim(figure=Figure.KERNELS, outcome=outcome, claim=claim, reasons=reasons)
    variant = item.partition("-")[2]
    if any(kernel.variant == variant and kernel.is_different for kernel in evidence.kernels):
        reason = fact("study.different_results", name=variant)
        return JudgedClaim(figure=Figure.KERNELS, outcome=ShapeOutcome.NOT_MEASURED, claim=claim, reasons=(reason,))
    return missing(Figure.KERNELS, claim, evidence, item)
