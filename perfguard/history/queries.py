"""Questions to the history."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import NothingSelectedError, StoreError
from perfguard.history.database import Database
from perfguard.history.run_records import MILLION
from perfguard.records.facts import Fact
from perfguard.records.history import CaseRecord, HistoryPoint, LoggedRun, MeasuredCode, RecordedSamples, RunRecord
from perfguard.records.machine.fingerprint import Fingerprint

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select, Table


MAX_RUNS = 500  # The newest ones, where all cases are asked for
_PIECE = 500  # Rows


class KnownRun(NamedTuple):
    """What its points take from a run."""

    row: int
    run_id: str
    started_at: float
    source_id: str | None
    stack_id: str | None
    commit: str | None


KnownRuns = Mapping[int, KnownRun]
"""Runs by their row."""


class RecordedSeries(Struct, frozen=True, kw_only=True):
    """The values of a case on a machine, in the order of time, one list a column: making all points takes long."""

    case_id: str
    machine_id: str | None
    newest_row: int  # Number of the newest run that measured it, also where a later one corrects that
    runs: Sequence[KnownRun]
    medians_s: Sequence[float]
    spreads_ppm: Sequence[int | None]
    blocks: Sequence[int]
    outcomes: Mapping[int, str]  # By the number of the run; without those that compared nothing

    def __len__(self) -> int:
        """Number of its points."""
        return len(self.runs)

    def points(self, places: Iterable[int] | None = None) -> tuple[HistoryPoint, ...]:
        """All of them, or those at some places."""
        columns: tuple[Sequence[Any], ...] = self.runs, self.medians_s, self.spreads_ppm, self.blocks
        if places is not None:
            chosen = tuple(places)
            columns = tuple([column[place] for place in chosen] for column in columns)
        case_id, machine_id, outcomes = self.case_id, self.machine_id, self.outcomes
        return tuple(
            HistoryPoint(
                run_id=run_id,
                t_wall=started_at,
                case_id=case_id,
                median_s=median_s,
                spread_ratio=None if spread_ppm is None else spread_ppm / MILLION,
                source_id=source_id,
                machine_id=machine_id,
                stack_id=stack_id,
                outcome=outcomes.get(row),
                commit=commit,
                blocks=blocks,
            )
            for (row, run_id, started_at, source_id, stack_id, commit), median_s, spread_ppm, blocks in zip(
                *columns, strict=True
            )
        )


def read_known_runs(database: Database, project: str) -> KnownRuns:
    """All runs of a project, for several calls of `read_series`."""
    with database.reading() as connection:
        return _known_runs(connection, project, None)


def read_points(
    database: Database, project: str, *, case_ids: Collection[str] | None = None, last: int | None = None
) -> tuple[HistoryPoint, ...]:
    """Points of a project in the order of time, then of cases; of the newest `last` runs, or of all.

    Without `case_ids`, of all cases.

    Raises:
        DatabaseError: The database cannot be read.
    """
    with database.reading() as connection:
        runs = _known_runs(connection, project, last)
        first = min(runs) if last is not None and runs else None
        found = [point for series in _recorded(connection, project, case_ids, runs, first) for point in series.points()]
    found.sort(key=attrgetter("t_wall", "case_id"))
    return tuple(found)


def read_series(
    database: Database, project: str, case_id: str, machine_id: str, known: KnownRuns
) -> RecordedSeries | None:
    """One series of the runs that are known; None where there is none. An unknown machine is empty.

    Raises:
        DatabaseError: The database cannot be read.
    """
    with database.reading() as connection:
        found = _recorded(connection, project, [case_id], known, None)
        return next((series for series in found if (series.machine_id or "") == machine_id), None)


def _known_runs(connection: Connection, project: str, last: int | None) -> KnownRuns:
    """The newest runs. Few series have many rows each: this is cheaper than joining the runs' texts to each row."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    of_runs = select(runs.c.id, runs.c.run_id, runs.c.started_at, runs.c.source_id, runs.c.stack_id, runs.c.commit)
    of_runs = of_runs.where(counts(project)).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(last)
    return {run.row: run for run in map(KnownRun._make, _rows(connection, of_runs))}


def _recorded(
    connection: Connection, project: str, case_ids: Collection[str] | None, known: KnownRuns, first: int | None
) -> Iterator[RecordedSeries]:
    from sqlalchemy import select

    from perfguard.history.tables import effects, series, values

    of_series = select(series.c.id, series.c.case_id, series.c.machine_id).where(series.c.project == project)
    if case_ids is not None:
        of_series = of_series.where(series.c.case_id.in_(case_ids))
    for series_id, case_id, machine_id in connection.execute(of_series).all():
        judged = _in_series(select(effects.c.run_row, effects.c.outcome), effects, series_id, first)
        outcomes: dict[int, str] = dict(connection.execute(judged).all())
        columns = select(values.c.run_row, values.c.median_s, values.c.spread_ppm, values.c.blocks)
        of_runs: list[KnownRun] = []
        medians_s: list[float] = []
        spreads_ppm: list[int | None] = []
        blocks: list[int] = []
        row = 0
        for row, median_s, spread_ppm, count in _rows(connection, _in_series(columns, values, series_id, first)):
            if (run := known.get(row)) is not None:
                of_runs.append(run)
                medians_s.append(median_s)
                spreads_ppm.append(spread_ppm)
                blocks.append(count)
        recorded = RecordedSeries(
            case_id=case_id,
            machine_id=machine_id or None,
            newest_row=row,
            runs=of_runs,
            medians_s=medians_s,
            spreads_ppm=spreads_ppm,
            blocks=blocks,
            outcomes=outcomes,
        )
        starts = [run.started_at for run in of_runs]
        yield recorded if starts == sorted(starts) else _by_time(recorded)


def _by_time(series: RecordedSeries) -> RecordedSeries:
    """The same where runs were recorded in another order than they started."""
    places = sorted(range(len(series)), key=lambda place: series.runs[place].started_at)
    return replace(
        series,
        runs=[series.runs[place] for place in places],
        medians_s=[series.medians_s[place] for place in places],
        spreads_ppm=[series.spreads_ppm[place] for place in places],
        blocks=[series.blocks[place] for place in places],
    )


def _rows(connection: Connection, question: Select[Any]) -> Iterator[Any]:
    """Rows in pieces: one by one they take longer to fetch, and all at once to free."""
    for piece in connection.execute(question).partitions(_PIECE):
        yield from piece


def _in_series(question: Select[Any], table: Table, series_id: int, first: int | None) -> Select[Any]:
    """The rows of a series, from a run on, in the order in which they were recorded."""
    from_there = () if first is None else (table.c.run_row >= first,)
    return question.where(table.c.series_id == series_id, *from_there).order_by(table.c.run_row)


def counts(project: str) -> ColumnElement[bool]:
    """Whether a row of `runs` is of a project and no later one corrects it."""
    from sqlalchemy import and_

    from perfguard.history.tables import runs

    return and_(runs.c.project == project, is_current())


def is_current() -> ColumnElement[bool]:
    """Whether no later row of `runs` corrects a row."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    later = runs.alias("later")
    return runs.c.id.not_in(select(later.c.corrects).where(later.c.corrects.is_not(None)))


def read_case_ids(database: Database, project: str) -> tuple[str, ...]:
    """All cases of a project, in the order in which they were first recorded."""
    from sqlalchemy import func, select

    from perfguard.history.tables import series

    first = func.min(series.c.id)
    question = select(series.c.case_id).where(series.c.project == project).group_by(series.c.case_id).order_by(first)
    with database.reading() as connection:
        return tuple(connection.execute(question).scalars().all())


def find_run(database: Database, project: str, name: str) -> int:
    """Row of the run whose id begins with a name.

    Raises:
        NothingSelectedError: There is none, or several.
    """
    from sqlalchemy import select

    from perfguard.history.tables import runs

    question = select(runs.c.id).where(counts(project), runs.c.run_id.startswith(name, autoescape=True)).limit(2)
    with database.reading() as connection:
        found: list[int] = list(connection.execute(question).scalars())
    if len(found) != 1:
        kind = "no recorded run begins" if not found else "several recorded runs begin"
        raise NothingSelectedError(f"{kind} with {name!r}; `perfguard history log` lists them")
    return found[0]


def read_log(database: Database, project: str, *, last: int) -> tuple[LoggedRun, ...]:
    """The newest runs of a project, newest first."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    newest = select(runs).where(counts(project)).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(last)
    with database.reading() as connection:
        rows = connection.execute(newest).mappings().all()
    return tuple(LoggedRun(row=row["id"], run=_run(row), cases=row["cases"]) for row in rows)


def read_run(database: Database, row: int) -> RunRecord:
    """A run with its cases, as it was recorded.

    Raises:
        StoreError: What is stored makes no run.
        DatabaseError: The database cannot be read.
    """
    with database.reading() as connection:
        return run_in(connection, row)


def run_in(connection: Connection, row: int) -> RunRecord:
    """The same on a connection."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    found = connection.execute(select(runs).where(runs.c.id == row)).mappings().one()
    cases = tuple(CaseRecord(**each) for each in connection.execute(_cases_of(row)).mappings())
    return replace(_run(found), cases=tuple(sorted(cases, key=lambda case: case.case_id)))


def _cases_of(row: int) -> Select[Any]:
    from sqlalchemy import select

    from perfguard.history.tables import effect_of_value, effects, series, values

    of = effects.c
    return (
        select(
            series.c.case_id,
            values.c.median_s,
            (values.c.spread_ppm / MILLION).label("spread_ratio"),
            values.c.blocks,
            of.outcome,
            of.log_ratio,
            of.lower,
            of.upper,
        )
        .select_from(series)
        .join(values, values.c.series_id == series.c.id)
        .outerjoin(effects, effect_of_value)
        .where(values.c.run_row == row)
    )


def _run(row: Any) -> RunRecord:
    problem = row["problem"]
    return RunRecord(
        project=row["project"],
        run_id=row["run_id"],
        started_at=row["started_at"],
        mode=row["mode"],
        suite=row["suite"],
        machine_id=row["machine_id"],
        outcome=row["outcome"],
        exit_code=row["exit_code"],
        candidate=MeasuredCode(source_id=row["source_id"], stack_id=row["stack_id"], commit=row["commit"]),
        baseline=MeasuredCode(
            source_id=row["baseline_source_id"], stack_id=row["baseline_stack_id"], commit=row["baseline_commit"]
        )
        if row["is_paired"]
        else None,
        events_bytes=row["events_bytes"],
        problem=from_builtins(json.loads(problem), Fact, source=row["run_id"]) if problem else None,
    )


def read_samples(database: Database, row: int) -> dict[str, RecordedSamples]:
    """Samples of a run's cases, by case id; none where they were dropped.

    Raises:
        StoreError: They are damaged.
        DatabaseError: The database cannot be read.
    """
    from sqlalchemy import select

    from perfguard.history.tables import samples, series

    wanted = select(series.c.case_id, samples.c.content).join(series, series.c.id == samples.c.series_id)
    with database.reading() as connection:
        rows = connection.execute(wanted.where(samples.c.run_row == row)).all()
    return {case_id: unpacked(content, f"samples of {case_id} in run {row}") for case_id, content in rows}


def unpacked(content: bytes, source: str) -> RecordedSamples:
    """Samples from their stored form. Raises StoreError: they are damaged."""
    try:
        return from_builtins(json.loads(zlib.decompress(content)), RecordedSamples, source=source)
    except (zlib.error, ValueError) as error:
        raise StoreError(f"{source} are damaged: {error}") from error


def read_fingerprints(
    database: Database, project: str, ids: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Fingerprint]:
    """A project's fingerprints by the ids of machine and software; those that are not known are left out."""
    from sqlalchemy import select, tuple_

    from perfguard.history.tables import fingerprints

    key = tuple_(fingerprints.c.machine_id, fingerprints.c.stack_id)
    with database.reading() as connection:
        rows = connection.execute(
            select(fingerprints.c.machine_id, fingerprints.c.stack_id, fingerprints.c.content).where(
                fingerprints.c.project == project, key.in_(ids)
            )
        ).all()
    return {
        (machine_id, stack_id): from_builtins(json.loads(content), Fingerprint, source=f"fingerprint {machine_id}")
        for machine_id, stack_id, content in rows
    }
