"""A step against its problems, each as fast as alone, and a problem against what the CPUs can do at best.

Source of projections: Fu et al. (2022), arXiv:2206.10034, section 2.3: the ceiling of model, framework and hardware is
the sum over unique problems of calls x time alone. Its ratio to the time in kernels and to the step are two different
efficiencies.
Source of rooflines: Williams, Waterman & Patterson (2009), "Roofline: an insightful visual performance model for
multicore architectures", doi:10.1145/1498765.1498785: attainable FLOP/s = min(peak FLOP/s, operational intensity x
bandwidth). Assumes: the data of a call comes from memory and goes there. What stays in caches is faster than its roof.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.profile.projection.arguments import Work
from perfguard.profile.projection.problems import Problem
from perfguard.records.facts import Fact
from perfguard.records.steps.projection import Projected, Projection, Roof, RooflineCeilings, RooflinePoint


def project(problems: Sequence[Projected], *, step_s: float) -> Projection:
    """Add a step of `step_s` seconds up: all its problems, replayed or not, in any order."""
    replayed = [problem for problem in problems if problem.projected_s is not None]
    ops_s = sum(problem.observed_s for problem in problems)
    covered_s = sum(problem.observed_s for problem in replayed)
    projected_s = sum(problem.projected_s or 0.0 for problem in replayed)
    replayed.sort(key=lambda problem: (-(problem.gap_s or 0.0), problem.name, problem.detail))
    others = [problem for problem in problems if problem.projected_s is None]
    others.sort(key=lambda problem: (-problem.observed_s, problem.name, problem.detail))
    return Projection(
        step_s=step_s,
        ops_s=ops_s,
        covered_s=covered_s,
        projected_s=projected_s,
        kernel_ratio=projected_s / covered_s if covered_s else None,
        framework_ratio=(projected_s + ops_s - covered_s) / step_s if step_s else None,
        problems=(*replayed, *others),
    )


def projected_op(
    problem: Problem, *, call_s: float | None, reason: Fact | None, overload: str = "", assumed: Sequence[str] = ()
) -> Projected:
    """An op and its time alone: seconds of one call of the overload, or the reason why it was not replayed."""
    return Projected(
        name=problem.op,
        detail=problem.detail,
        phases=problem.phases,
        modules=problem.modules,
        calls=problem.calls,
        observed_s=problem.observed_s,
        projected_s=None if call_s is None else problem.calls * call_s,
        reason=reason,
        implementation=overload,
        assumed=(*problem.assumed, *assumed),
    )


def roofline_point(
    problem: Problem, work: Work, ceilings: RooflineCeilings, *, alone_s: float | None
) -> RooflinePoint | None:
    """A problem with its work against the ceilings of the CPUs; `alone_s` are the seconds of one call alone, if known.

    None where no time was observed, or where it computes in a dtype whose peak was not measured.
    """
    peak = ceilings.flops_per_s.get(work.dtype)
    if not problem.observed_s or (work.flops is not None and not peak):
        return None
    memory_s = work.size_bytes / ceilings.bytes_per_s
    compute_s = work.flops / peak if work.flops is not None and peak else 0.0
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
