"""A step against its problems, each as fast as alone: efficiency, and which ones lose most.

Source: Fu et al. (2022), arXiv:2206.10034, section 2.3: the ceiling of model, framework and hardware is the sum over
unique problems of calls x time alone. Its ratio to the time in kernels and to the step are two different efficiencies.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.profile.projection.problems import Problem
from perfguard.records.facts import Fact
from perfguard.records.steps.projection import Projected, Projection


def project(problems: Sequence[Projected], *, step_s: float) -> Projection:
    """Add a step up.

    Args:
        problems: All problems of the step, replayed or not, in any order.
        step_s: Seconds of the step.
    """
    replayed = [problem for problem in problems if problem.projected_s is not None]
    ops_s = sum(problem.observed_s for problem in problems)
    covered_s = sum(problem.observed_s for problem in replayed)
    projected_s = sum(problem.projected_s or 0.0 for problem in replayed)
    return Projection(
        step_s=step_s,
        ops_s=ops_s,
        covered_s=covered_s,
        projected_s=projected_s,
        kernel_ratio=projected_s / covered_s if covered_s else None,
        framework_ratio=(projected_s + ops_s - covered_s) / step_s if step_s else None,
        problems=tuple(sorted(problems, key=_furthest_first)),
    )


def projected_op(
    problem: Problem, *, call_s: float | None, reason: Fact | None, overload: str = "", assumed: Sequence[str] = ()
) -> Projected:
    """An op and its time alone.

    Args:
        problem: The op with its arguments.
        call_s: Seconds of one call alone; None where it was not replayed.
        reason: Why not.
        overload: What was replayed.
        assumed: What had to be guessed for it.
    """
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


def _furthest_first(problem: Projected) -> tuple[bool, float, str, str]:
    gap_s = problem.gap_s
    lost_s = problem.observed_s if gap_s is None else gap_s
    return gap_s is None, -lost_s, problem.name, problem.detail
