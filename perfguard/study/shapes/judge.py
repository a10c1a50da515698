"""Every claim of a study."""

from __future__ import annotations

from perfguard.study.evidence import StudyEvidence
from perfguard.study.paper import Paper
from perfguard.study.shapes.case_studies import case_shape
from perfguard.study.shapes.donuts import donut_shapes
from perfguard.study.shapes.kernels import kernel_shapes
from perfguard.study.shapes.phases import phase_shapes
from perfguard.study.shapes.scaling import convergence_shape, ranks_shape
from perfguard.study.shapes.shape import JudgedClaim


def shapes_of(evidence: StudyEvidence, paper: Paper) -> tuple[JudgedClaim, ...]:
    """Every claim of the study, by figure in the order of the report."""
    return (
        *donut_shapes(evidence, paper),
        *phase_shapes(evidence, paper),
        *kernel_shapes(evidence, paper),
        *(case_shape(case, evidence) for case in paper.cases),
        ranks_shape(evidence.ranks, evidence),
        *map(convergence_shape, paper.convergence),
    )
