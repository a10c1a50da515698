"""What page and Markdown say alike: marks, lines on each shape, rows of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from perfguard.records.estimate import Estimate
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.shown import Mark
from perfguard.study.evidence import DTYPES, LibraryShare, ModelDonut, StudyEvidence
from perfguard.study.items import VARIANTS
from perfguard.study.paper import Paper, PaperSlice
from perfguard.study.shapes.case_studies import case_shape, gain_of
from perfguard.study.shapes.kernels import (
    Times,
    kernel_ratio,
    reference_backward,
    reference_forward,
    variant_backward,
    variant_forward,
)
from perfguard.study.shapes.shape import Figure, JudgedClaim, ShapeOutcome
from perfguard.units import format_factor

OUTCOMES = {
    ShapeOutcome.HOLDS: Mark("✓", "holds", "faster"),
    ShapeOutcome.FAILS: Mark("✗", "does not hold", "broken"),
    ShapeOutcome.OPEN: Mark("?", "open", "open"),
    ShapeOutcome.NOT_MEASURED: Mark("·", "not measured", "same"),
}
TITLES = {
    Figure.DONUTS: "Fig. 2: where the time of a step is",
    Figure.PHASES: "Fig. 4: what more classes cost",
    Figure.KERNELS: "Fig. 6: variants of the focal loss",
    Figure.CASES: "The paper's optimizations",
    Figure.RANKS: "Table 2: threads and ranks",
    Figure.CONVERGENCE: "Fig. 7: larger batches need more epochs (MLPerf's published figures; nothing is measured)",
}
VARIANT_NAMES = {"reference": "default", "implicit": "one expression", "explicit": "explicit backward"}


def said(shape: JudgedClaim) -> str:
    """A shape in one line, without its mark."""
    claim = describe(shape.claim)
    return f"{claim}. {describe_all(shape.reasons)}" if shape.reasons else claim


def counted(shapes: Sequence[JudgedClaim]) -> str:
    """`9 hold, 2 do not hold, 1 open, 9 not measured (and 4 of 4 in figures that MLPerf has published)`."""
    published = [shape for shape in shapes if shape.figure is Figure.CONVERGENCE]
    counts = {outcome: sum(s.outcome is outcome for s in shapes if s not in published) for outcome in ShapeOutcome}
    words = ("hold", "do not hold", "open", "not measured")
    said = ", ".join(f"{counts[outcome]} {word}" for outcome, word in zip(ShapeOutcome, words, strict=True))
    held = sum(shape.outcome is ShapeOutcome.HOLDS for shape in published)
    return f"{said} (and {held} of {len(published)} in figures that MLPerf has published)" if published else said


class SliceRow(Struct, frozen=True, kw_only=True):
    """One kind of work in both donuts."""

    name: str  # `convolution BWD_W`
    paper: float  # Share there; 0 where it has none
    here: float  # Share here


def slice_rows(published: Sequence[PaperSlice], donut: ModelDonut | None) -> list[SliceRow]:
    """Kinds of work of either side, the paper's first."""
    own: Sequence[LibraryShare] = donut.slices if donut is not None else ()
    there = {_kind(s): s.share for s in published}
    here = {_kind(s): s.share for s in own}
    names = [*there, *(name for name in here if name not in there)]
    return [SliceRow(name=name, paper=there.get(name, 0.0), here=here.get(name, 0.0)) for name in names]


def _kind(piece: PaperSlice | LibraryShare) -> str:
    return f"{piece.name} {piece.direction}".rstrip()


class BarRow(Struct, frozen=True, kw_only=True):
    """A ratio there and here."""

    name: str
    paper: float | None
    here: Estimate | None  # On the log scale

    @property
    def factor(self) -> float | None:
        """The ratio here."""
        return math.exp(self.here.log_ratio) if self.here is not None else None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Its interval; None where it is unknown."""
        if self.here is None or not math.isfinite(self.here.interval.lower + self.here.interval.upper):
            return None
        return math.exp(self.here.interval.lower), math.exp(self.here.interval.upper)

    @property
    def interval(self) -> str:
        """`1.20× to 1.31×`; `-` where it is unknown."""
        return " to ".join(map(format_factor, self.ends)) if self.ends is not None else "-"


def phase_rows(evidence: StudyEvidence, paper: Paper) -> list[BarRow]:
    """Fig. 4."""
    here = {phase.phase: phase.ratio for phase in evidence.classes.phases} if evidence.classes is not None else {}
    return [BarRow(name=name, paper=ratio, here=here.get(name)) for name, ratio in paper.phases.items()]


class KernelRow(Struct, frozen=True, kw_only=True):
    """A bar of Fig. 6: over the forward of the default in float32, there and here."""

    dtype: str
    is_forward: bool
    variant: str
    bar: BarRow


def kernel_rows(evidence: StudyEvidence, paper: Paper) -> list[KernelRow]:
    """Fig. 6: dtype by dtype, forward and backward, variant by variant."""
    return [
        KernelRow(
            dtype=dtype,
            is_forward=is_forward,
            variant=variant,
            bar=BarRow(
                name=f"{'forward' if is_forward else 'backward'}, {dtype}, {VARIANT_NAMES[variant]}",
                paper=paper.kernel(variant).times(dtype).forward
                if is_forward
                else paper.kernel(variant).times(dtype).backward,
                here=_bar(evidence, variant, dtype, is_forward=is_forward),
            ),
        )
        for dtype in DTYPES
        for is_forward in (True, False)
        for variant in VARIANTS
    ]


def _bar(evidence: StudyEvidence, variant: str, dtype: str, *, is_forward: bool) -> Estimate | None:
    """Seconds over those of the default's forward in float32, within the same blocks."""
    is_default = variant == VARIANTS[0]
    pair = next((k for k in map(evidence.kernel, VARIANTS[1:]) if k), None) if is_default else evidence.kernel(variant)
    if pair is None:
        return None
    above: Times = (
        (reference_forward if is_forward else reference_backward)
        if is_default
        else (variant_forward if is_forward else variant_backward)
    )
    own = {block.block: block for block in pair.blocks if block.dtype == dtype}
    base = {block.block: reference_forward(block) for block in pair.blocks if block.dtype == DTYPES[0]}
    common = [block for number, block in own.items() if number in base]
    return kernel_ratio(common, above, lambda block: base[block.block])


class CaseStudyRow(Struct, frozen=True, kw_only=True):
    """A row of the table of case studies."""

    what: str
    bar: BarRow
    shape: JudgedClaim


def case_rows(evidence: StudyEvidence, paper: Paper) -> list[CaseStudyRow]:
    """Every case study of the paper, in its order."""
    return [
        CaseStudyRow(
            what=case.what,
            bar=BarRow(name=case.name, paper=case.gain, here=gain_of(case.name, evidence)),
            shape=case_shape(case, evidence),
        )
        for case in paper.cases
    ]
