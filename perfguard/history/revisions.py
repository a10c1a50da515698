"""Two revisions compared by what is recorded of them: paired where a run measured both, else over the runs of each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from perfguard.history.database import Database
from perfguard.history.pairs import HALF_WIDTH, pooled
from perfguard.history.queries import counts
from perfguard.records.history import CaseBetweenRevisions, CaseOverMachines, ComparedRevisions
from perfguard.stats.pooling import pool_effects
from perfguard.stats.rounds import welch

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LEVEL = 0.95
_LEAST_RUNS = 2  # Of each revision, for an interval over runs


class _Measured(Struct, frozen=True):
    """A case in one run."""

    key: tuple[str, str | None, str | None]  # Case, machine, software
    commit: str
    baseline_commit: str | None
    median_s: float
    effect: tuple[float, float, float] | None  # Log ratio and the ends of its interval


def compare_revisions(database: Database, project: str, before: str, after: str) -> ComparedRevisions:
    """Cases that are recorded at both commits; runs of changed trees do not count.

    Raises:
        DatabaseError: The database cannot be read.
    """
    with database.reading() as connection:
        found = list(_measured(connection, project, (before, after)))
    keys = dict.fromkeys(each.key for each in found)
    compared = (_compared([each for each in found if each.key == key], before, after) for key in keys)
    cases = tuple(sorted(filter(None, compared), key=lambda case: -case.log_ratio))
    return ComparedRevisions(cases=cases, over_machines=over_machines(cases))


def over_machines(cases: Sequence[CaseBetweenRevisions]) -> tuple[CaseOverMachines, ...]:
    """Cases with an interval on two machines or more, pooled with the machine as a random effect."""
    by_case: dict[str, list[CaseBetweenRevisions]] = {}
    for case in cases:
        if case.lower is not None:
            by_case.setdefault(case.case_id, []).append(case)
    pooled = [_pooled_over(found) for found in by_case.values() if len(found) > 1]
    return tuple(sorted(pooled, key=lambda case: -case.log_ratio))


def _pooled_over(found: Sequence[CaseBetweenRevisions]) -> CaseOverMachines:
    errors = [((case.upper or 0.0) - (case.lower or 0.0)) / 2 / HALF_WIDTH for case in found]
    effect = pool_effects([case.log_ratio for case in found], errors, _LEVEL)
    return CaseOverMachines(
        case_id=found[0].case_id,
        machines=tuple(case.machine_id or "" for case in found),
        log_ratio=effect.log_ratio,
        lower=effect.lower,
        upper=effect.upper,
        between_sd=effect.between_sd,
        p_alike=effect.p_alike,
        slower_on=tuple(case.machine_id or "" for case in found if (case.lower or 0.0) > 0),
    )


def _measured(connection: Connection, project: str, commits: tuple[str, str]) -> Iterator[_Measured]:
    from sqlalchemy import select

    from perfguard.history.tables import effect_of_value, effects, runs, series, values

    question = (
        select(
            series.c.case_id,
            series.c.machine_id,
            runs.c.stack_id,
            runs.c.commit,
            runs.c.baseline_commit,
            values.c.median_s,
            effects.c.log_ratio,
            effects.c.lower,
            effects.c.upper,
        )
        .select_from(runs)
        .join(values, values.c.run_row == runs.c.id)
        .join(series, series.c.id == values.c.series_id)
        .outerjoin(effects, effect_of_value)
        .where(
            counts(project), series.c.project == project, runs.c.commit.in_(commits), runs.c.source_id.not_like("%+%")
        )
    )
    for case_id, machine_id, stack_id, commit, baseline, median_s, *effect in connection.execute(question):
        known = None if None in effect else tuple(effect)
        yield _Measured((case_id, machine_id or None, stack_id), commit, baseline, median_s, known)


def _compared(found: Sequence[_Measured], before: str, after: str) -> CaseBetweenRevisions | None:
    earlier = [each.median_s for each in found if each.commit == before]
    later = [each.median_s for each in found if each.commit == after]
    paired = [*_effects(found, after, before), *((-a, -c, -b) for a, b, c in _effects(found, before, after))]
    if not paired and not (earlier and later):
        return None
    log_ratio, lower, upper = pooled(paired) if paired else _over_runs(earlier, later)
    # Where one side was measured in pairs alone, their effect says what it took.
    before_s = statistics.median(earlier) if earlier else statistics.median(later) / math.exp(log_ratio)
    case_id, machine_id, stack_id = found[0].key
    return CaseBetweenRevisions(
        case_id=case_id,
        machine_id=machine_id,
        stack_id=stack_id,
        before_s=before_s,
        after_s=statistics.median(later) if later else before_s * math.exp(log_ratio),
        before_runs=len(earlier),
        after_runs=len(later),
        paired_runs=len(paired),
        log_ratio=log_ratio,
        lower=lower,
        upper=upper,
    )


def _effects(found: Sequence[_Measured], candidate: str, baseline: str) -> list[tuple[float, float, float]]:
    """Effects of one commit against another that runs measured in pairs."""
    return [
        each.effect
        for each in found
        if each.commit == candidate and each.baseline_commit == baseline and each.effect is not None
    ]


def _over_runs(before: Sequence[float], after: Sequence[float]) -> tuple[float, float | None, float | None]:
    logs = [np.log(np.asarray(side)) for side in (before, after)]
    if min(len(before), len(after)) < _LEAST_RUNS:
        return float(np.mean(logs[1]) - np.mean(logs[0])), None, None
    found = welch(logs[0], logs[1], _LEVEL)
    return found.log_ratio, found.interval.lower, found.interval.upper
