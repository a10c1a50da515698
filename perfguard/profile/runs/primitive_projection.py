"""The oneDNN primitives of a profiled step, each run alone by benchdnn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfguard.profile.libraries.benchdnn import (
    PrimitiveProblem,
    UnsupportedPrimitiveError,
    benchdnn_options,
    parse_benchdnn,
    primitive_problems,
    projected_primitive,
)
from perfguard.profile.libraries.verbose import parse_verbose
from perfguard.profile.projection.projection import project
from perfguard.profile.runs.profiles import logged_lines
from perfguard.records.facts import Fact, fact
from perfguard.records.run import Arm
from perfguard.records.steps.projection import Projected, Projection
from perfguard.runner.process.starter import ProcessStarter
from perfguard.runner.profiling.benchdnn import Benchdnn, BenchdnnFailure, find_benchdnn
from perfguard.runner.profiling.replays import OUT_OF_TIME, Replaying


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitiveProjection:
    """What became of a step's primitives."""

    projection: Projection | None
    """None where there are none, or no benchdnn."""
    notes: tuple[Fact, ...] = ()
    """What the reader should know."""


def installed_benchdnn(starter: ProcessStarter, arm: Arm) -> Benchdnn | None:
    """What runs benchdnn beside the workers of an arm; None where it is not on their path."""
    environment = starter.environments[arm]
    path = find_benchdnn(environment)
    if path is None:
        return None
    return Benchdnn(path=path, environment=environment, cpus=starter.cpus, memory_node=starter.memory_node)


def project_primitives(
    log: Path | None, benchdnn: Benchdnn | None, replaying: Replaying, *, step_s: float
) -> PrimitiveProjection:
    """Run the primitives of a step alone, the longest first, until the budget is used up.

    Args:
        log: What oneDNN printed in one step; None where there is none.
        benchdnn: How they are run.
        replaying: Tells the budget and the clock.
        step_s: Seconds of the step.

    Raises:
        StoreError: The log cannot be read.
    """
    problems = primitive_problems(parse_verbose(logged_lines(log)).calls)
    if not problems:
        return PrimitiveProjection(projection=None)
    if benchdnn is None:
        return PrimitiveProjection(projection=None, notes=(fact("projection.no_benchdnn"),))
    ends = replaying.clock() + replaying.budget_s
    rows = []
    for problem in problems:
        in_time = replaying.clock() < ends and not replaying.should_stop()
        rows.append(_alone(problem, benchdnn) if in_time else _not_run(problem, OUT_OF_TIME))
    return PrimitiveProjection(projection=project(rows, step_s=step_s))


def _alone(problem: PrimitiveProblem, benchdnn: Benchdnn) -> Projected:
    try:
        found = parse_benchdnn(benchdnn.run(benchdnn_options(problem)))
    except (UnsupportedPrimitiveError, BenchdnnFailure) as failure:
        return _not_run(problem, fact("replay.refused", error=str(failure)))
    return projected_primitive(problem, call_s=found.call_s, reason=found.reason, implementation=found.implementation)


def _not_run(problem: PrimitiveProblem, reason: Fact) -> Projected:
    return projected_primitive(problem, call_s=None, reason=reason)
