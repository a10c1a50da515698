"""How near a problem is to what the CPUs can do at best.

Source: Williams, Waterman & Patterson (2009), "Roofline: an insightful visual performance model for multicore
architectures", doi:10.1145/1498765.1498785: attainable FLOP/s = min(peak FLOP/s, operational intensity x bandwidth).
Assumes: the data of a call comes from memory and goes there. What stays in caches is faster than its roof.
"""

from __future__ import annotations

from perfguard.profile.projection.problems import Problem
from perfguard.profile.projection.work_amount import Work
from perfguard.records.steps.projection import Roof, RooflineCeilings, RooflinePoint


def roofline_point(
    problem: Problem, work: Work, ceilings: RooflineCeilings, *, alone_s: float | None
) -> RooflinePoint | None:
    """A problem against its ceilings.

    Args:
        problem: With the seconds that it takes in the step.
        work: Of one call.
        ceilings: Of the CPUs.
        alone_s: Seconds of one call alone; None where that is not known.

    Returns:
        None where no time was observed, or where it computes in a dtype whose peak was not measured.
    """
    memory_s = work.size_bytes / ceilings.bytes_per_s
    compute_s = _compute_s(work, ceilings)
    if compute_s is None or not problem.observed_s:
        return None
    return RooflinePoint(
        name=problem.op,
        detail=problem.detail,
        dtype=work.dtype,
        calls=problem.calls,
        flops=work.flops,
        size_bytes=work.size_bytes,
        call_s=problem.observed_s / problem.calls,
        alone_s=alone_s,
        roof=Roof.COMPUTE if compute_s > memory_s else Roof.MEMORY,
        best_s=max(compute_s, memory_s),
        assumed=(*problem.assumed, *work.assumed),
    )


def _compute_s(work: Work, ceilings: RooflineCeilings) -> float | None:
    """Seconds for its operations; none for what is counted in bytes only, None where the peak is not known."""
    if work.flops is None:
        return 0.0
    peak = ceilings.flops_per_s.get(work.dtype)
    return work.flops / peak if peak else None
