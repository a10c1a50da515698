"""How much slower one commit is than another, from runs that measured both in turns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from perfguard.history.database import Database
from perfguard.history.queries import counts

HALF_WIDTH = 1.96  # Standard errors of half a 95 % interval


class PairedEffect(NamedTuple):
    """How much slower a commit is than another one, from a run that measured both in turns."""

    case_id: str
    commit: str
    baseline_commit: str
    log_ratio: float
    lower: float  # 95 % interval
    upper: float


def read_pairs(
    database: Database, project: str, machine_id: str, case_ids: Collection[str], *, last: int
) -> tuple[PairedEffect, ...]:
    """Effects of commits on these cases, of the newest `last` runs that measured two commits, in the order of time.

    Without runs of changed trees, and those whose arms had other software.

    Raises:
        DatabaseError: The database cannot be read.
    """
    from sqlalchemy import select

    from perfguard.history.tables import effects, runs, series

    clean = [source.not_like("%+%") for source in (runs.c.source_id, runs.c.baseline_source_id)]
    newest = select(runs.c.id).where(
        counts(project),
        runs.c.machine_id == machine_id,
        runs.c.commit != runs.c.baseline_commit,
        runs.c.stack_id == runs.c.baseline_stack_id,
        *clean,
    )
    newest = newest.order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(last)
    columns = (effects.c.log_ratio, effects.c.lower, effects.c.upper)
    question = (
        select(series.c.case_id, runs.c.commit, runs.c.baseline_commit, *columns)
        .select_from(effects)
        .join(series, series.c.id == effects.c.series_id)
        .join(runs, runs.c.id == effects.c.run_row)
        .where(
            series.c.project == project,
            series.c.machine_id == machine_id,
            series.c.case_id.in_(case_ids),
            effects.c.run_row.in_(newest),
            *(column.is_not(None) for column in columns),
        )
        .order_by(runs.c.started_at, runs.c.id)
    )
    with database.reading() as connection:
        return tuple(map(PairedEffect._make, connection.execute(question)))


def pooled(effects: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Mean of paired effects, each weighted by the inverse of its variance."""
    errors = [max((upper - lower) / 2 / HALF_WIDTH, 1e-6) for _, lower, upper in effects]
    weights = [1 / error**2 for error in errors]
    mean = sum(weight * effect[0] for weight, effect in zip(weights, effects, strict=True)) / sum(weights)
    half = HALF_WIDTH / math.sqrt(sum(weights))
    return mean, mean - half, mean + half
