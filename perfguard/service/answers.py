"""What the API gives, computed from the database. Times are seconds, moments seconds since the epoch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from perfguard.errors import NothingSelectedError
from perfguard.history.changes import ChangePoint, change_points_of
from perfguard.history.database import Database
from perfguard.history.queries import RecordedSeries, read_fingerprints, read_log
from perfguard.history.revisions import compare_revisions
from perfguard.history.states import read_states
from perfguard.records.case_names import short_names
from perfguard.records.history import CaseBetweenRevisions, CaseOverMachines, HistoryPoint
from perfguard.service.decimation import MOST_POINTS, kept_places
from perfguard.service.environments import changed_facts

MOST_RUNS = 1_000  # Newest ones, in which changes are looked for


class ListedChange(Struct, frozen=True, kw_only=True):
    """A case became slower or faster."""

    case_id: str
    title: str  # Its short name
    machine_id: str
    run_id: str  # First run at the new level
    at: float
    log_ratio: float  # New level over the old one
    lower: float  # 95 % interval
    upper: float
    cause: str  # `code`, `same code`, `within noise`, `unknown`
    state: str  # `new`, or what somebody said
    said_by: str | None
    because: str | None
    commit_before: str | None
    commit_after: str | None


class Points(Struct, frozen=True, kw_only=True):
    """Values of a series, one list a column; all lists are equally long."""

    at: tuple[float, ...]
    median_s: tuple[float, ...]
    lower_s: tuple[float | None, ...]  # The median less its spread; null where that is unknown
    upper_s: tuple[float | None, ...]
    run_id: tuple[str, ...]
    commit: tuple[str | None, ...]


class EnvironmentChange(Struct, frozen=True, kw_only=True):
    """A fact of a machine or its software that differs."""

    name: str
    before: str
    after: str


class Band(Struct, frozen=True, kw_only=True):
    """Runs with one software stack."""

    start: float
    end: float
    stack_id: str | None
    changed: tuple[EnvironmentChange, ...]  # From the band before, where both are known


class Series(Struct, frozen=True, kw_only=True):
    """A case on a machine over the recorded runs."""

    case_id: str
    title: str
    machine_id: str
    runs: int  # All of them; `points` may be fewer
    points: Points
    bands: tuple[Band, ...]
    changes: tuple[ListedChange, ...]


class SeriesName(Struct, frozen=True, kw_only=True):
    """A series that there is."""

    case_id: str
    title: str
    machine_id: str


class RevisionComparison(Struct, frozen=True, kw_only=True):
    """Two revisions."""

    before: str
    after: str
    cases: tuple[CaseBetweenRevisions, ...]  # With an interval, the largest slowdown first
    too_little_data: tuple[CaseBetweenRevisions, ...]  # Without one
    over_machines: tuple[CaseOverMachines, ...]


class ChangeDetails(Struct, frozen=True, kw_only=True):
    """A change with what helps to find its cause."""

    change: ListedChange
    software: Band  # All runs with the software of both sides, and how it differs from the one before
    elsewhere: tuple[ListedChange, ...]  # The same commits on other machines
    other_cases: tuple[ListedChange, ...]  # Other cases at the same run
    commands: tuple[str, ...]  # To go on with


def series_names(database: Database, project: str) -> tuple[SeriesName, ...]:
    """All series of a project, by case and machine."""
    from sqlalchemy import select

    from perfguard.history.tables import series

    question = select(series.c.case_id, series.c.machine_id).where(series.c.project == project)
    with database.reading() as connection:
        rows = connection.execute(question.order_by(series.c.case_id, series.c.machine_id)).all()
    titles = short_names(row.case_id for row in rows)
    return tuple(SeriesName(case_id=row.case_id, title=titles[row.case_id], machine_id=row.machine_id) for row in rows)


def projects(database: Database) -> tuple[str, ...]:
    """All projects, by name."""
    from sqlalchemy import select

    from perfguard.history.tables import series

    with database.reading() as connection:
        return tuple(connection.execute(select(series.c.project).distinct().order_by(series.c.project)).scalars())


def series_answer(
    database: Database,
    project: str,
    name: SeriesName,
    recorded: RecordedSeries,
    changes: Sequence[ListedChange],
    *,
    most: int = MOST_POINTS,
) -> Series:
    """One series with its changes, decimated to at most so many points; the runs of the changes stay."""
    starts = {change.run_id for change in changes}
    always = [place for place, run in enumerate(recorded.runs) if run.run_id in starts] if starts else ()
    kept = kept_places(recorded.medians_s, most=most, always=always)
    return Series(
        case_id=name.case_id,
        title=name.title,
        machine_id=name.machine_id,
        runs=len(recorded),
        points=_points(recorded.points(kept)),
        bands=_bands(database, project, recorded),
        changes=tuple(changes),
    )


def changes_in(
    database: Database, project: str, name: SeriesName, recorded: RecordedSeries
) -> tuple[ListedChange, ...]:
    """The changes among the newest runs of a series: looking for them takes n²."""
    stated = read_states(database, project).get((name.case_id, recorded.machine_id), ())
    newest = recorded.points(range(max(0, len(recorded) - MOST_RUNS), len(recorded)))
    return tuple(_change(change, name.title) for change in change_points_of(newest, stated))


def _points(points: Sequence[HistoryPoint]) -> Points:
    spreads = [point.spread_s for point in points]
    return Points(
        at=tuple(point.t_wall for point in points),
        median_s=tuple(point.median_s for point in points),
        lower_s=tuple(spread[0] if spread else None for spread in spreads),
        upper_s=tuple(spread[1] if spread else None for spread in spreads),
        run_id=tuple(point.run_id for point in points),
        commit=tuple(point.commit for point in points),
    )


def _bands(database: Database, project: str, recorded: RecordedSeries) -> tuple[Band, ...]:
    """A band for each stretch of one software stack, touching the next one."""
    stacks = enumerate(pairwise(run.stack_id for run in recorded.runs), start=1)
    starts = recorded.points([0, *(place for place, (before, now) in stacks if now != before)])
    ends = [*(point.t_wall for point in starts[1:]), recorded.runs[-1].started_at]
    changed = [(), *(_changed(database, project, before, now) for before, now in pairwise(starts))]
    return tuple(
        Band(start=point.t_wall, end=end, stack_id=point.stack_id, changed=facts)
        for point, end, facts in zip(starts, ends, changed, strict=True)
    )


def _changed(
    database: Database, project: str, before: HistoryPoint, after: HistoryPoint
) -> tuple[EnvironmentChange, ...]:
    """What differs between two stacks on one machine."""
    keys = [(point.machine_id or "", point.stack_id or "") for point in (before, after)]
    known = read_fingerprints(database, project, keys)
    if not all(key in known for key in keys):
        return ()
    return tuple(
        EnvironmentChange(name=name, before=old, after=new)
        for name, old, new in changed_facts(known[keys[0]], known[keys[1]])
    )


def _change(change: ChangePoint, title: str) -> ListedChange:
    stated = change.stated
    return ListedChange(
        case_id=change.after.case_id,
        title=title,
        machine_id=change.after.machine_id or "",
        run_id=change.after.run_id,
        at=change.after.t_wall,
        log_ratio=change.log_ratio,
        lower=change.lower,
        upper=change.upper,
        cause=change.cause.value,
        state=change.state.value,
        said_by=stated.author if stated else None,
        because=stated.reason if stated else None,
        commit_before=change.before.commit,
        commit_after=change.after.commit,
    )


def compare_answer(database: Database, project: str, before: str, after: str) -> RevisionComparison:
    """Two revisions, by the beginnings of their commits.

    Raises:
        NothingSelectedError: A beginning names no recorded commit, or several.
    """
    commits = _commit(database, project, before), _commit(database, project, after)
    found = compare_revisions(database, project, *commits)
    return RevisionComparison(
        before=commits[0],
        after=commits[1],
        cases=tuple(case for case in found.cases if case.lower is not None),
        too_little_data=tuple(case for case in found.cases if case.lower is None),
        over_machines=found.over_machines,
    )


def _commit(database: Database, project: str, name: str) -> str:
    from sqlalchemy import select

    from perfguard.history.queries import counts
    from perfguard.history.tables import runs

    found: set[str] = set()
    with database.reading() as connection:
        for column in (runs.c.commit, runs.c.baseline_commit):
            wanted = select(column).where(counts(project), column.startswith(name, autoescape=True)).distinct().limit(2)
            found.update(connection.execute(wanted).scalars())
    if len(found) != 1 or not name:
        kind = "several recorded commits begin" if found and name else "no recorded commit begins"
        raise NothingSelectedError(f"{kind} with {name!r}")
    return found.pop()


def change_details(
    database: Database, project: str, recorded: RecordedSeries, change: ListedChange, every: Sequence[ListedChange]
) -> ChangeDetails:
    """One change of a series; `every` are all changes of the project."""
    here = (change.commit_before, change.commit_after)
    return ChangeDetails(
        change=change,
        software=next(band for band in reversed(_bands(database, project, recorded)) if band.start <= change.at),
        elsewhere=tuple(
            other
            for other in every
            if other.case_id == change.case_id
            and other.machine_id != change.machine_id
            and change.commit_after is not None
            and (other.commit_before, other.commit_after) == here
        ),
        other_cases=tuple(
            other for other in every if other.run_id == change.run_id and other.case_id != change.case_id
        ),
        commands=_commands(change),
    )


def _commands(change: ListedChange) -> tuple[str, ...]:
    """To find the commit, and to say what became of the change."""
    name = (change.commit_after or "")[:12] or change.run_id
    case = shlex.quote(change.case_id)
    mark = f"perfguard history mark {case} {shlex.quote(name)} acknowledged --because '…'"
    if change.cause == "code" and change.commit_before and change.commit_after:
        good, bad = (shlex.quote(commit[:12]) for commit in (change.commit_before, change.commit_after))
        return f"perfguard bisect --good {good} --bad {bad} --case {case}", mark
    return (mark,)


def newest_row(database: Database, project: str) -> tuple[int, int]:
    """Numbers that grow with every run and with every word on a change."""
    from sqlalchemy import func, select

    from perfguard.history.tables import change_states, runs

    with database.reading() as connection:
        run = connection.execute(select(func.max(runs.c.id)).where(runs.c.project == project)).scalar()
        state = connection.execute(select(func.max(change_states.c.id))).scalar()
    return run or 0, state or 0


class LoggedRunAnswer(Struct, frozen=True, kw_only=True):
    """A recorded run."""

    run_id: str
    at: float
    suite: str
    machine_id: str | None
    commit: str | None
    outcome: str | None
    cases: int


def log_answer(database: Database, project: str, *, last: int) -> tuple[LoggedRunAnswer, ...]:
    """The newest runs."""
    return tuple(
        LoggedRunAnswer(
            run_id=logged.run.run_id,
            at=logged.run.started_at,
            suite=logged.run.suite,
            machine_id=logged.run.machine_id,
            commit=logged.run.candidate.commit,
            outcome=logged.run.outcome,
            cases=logged.cases,
        )
        for logged in read_log(database, project, last=last)
    )
