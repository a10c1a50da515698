"""Putting runs into the history: once each, all of it or nothing."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfguard.history.database import Database, is_off, opened
from perfguard.history.project_names import project_name
from perfguard.history.run_records import MILLION, content_hash, record_of, samples_of, stored_json
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.history import CaseRecord, MeasuredRun, RecordedSamples, RunRecord
from perfguard.records.run_data import RunData
from perfguard.runner.leftovers import goes_on
from perfguard.watch.sources.event_sources import EVENTS_FILE, host_of
from perfguard.watch.sources.event_tail import EventTail

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from perfguard.config import LoadedConfig
    from perfguard.records.machine.fingerprint import Fingerprint

DAY_S = 86_400.0


def record_run(loaded: LoadedConfig, folder: Path, data: RunData) -> None:
    """Record a run that has just ended, and drop samples that are older than the setting allows.

    Raises:
        ConfigError: The setting names no database.
        DatabaseError: The database cannot be reached or written, or is of another version.
    """
    setting = loaded.config.database
    if is_off(setting) or data.start is None:
        return
    events = folder / EVENTS_FILE
    record = record_of(
        data,
        project=project_name(loaded),
        run_id=folder.name,
        started_at=_head_time(events),
        events_bytes=events.stat().st_size,
    )
    with opened(setting, loaded.project) as database:
        add_run(database, record, samples=samples_of(data), fingerprint=host_of(folder))
        drop_samples(database, older_than_s=loaded.config.keep_samples_days * DAY_S)


def catch_up(database: Database, loaded: LoadedConfig, *, last: int) -> None:
    """Record those of a project's newest runs that are not, such as runs that were killed.

    A run that goes on is left for later.

    Raises:
        DatabaseError: The database cannot be written.
    """
    project = project_name(loaded)
    paths = sorted((loaded.project / ".perfguard" / "runs").glob(f"*/{EVENTS_FILE}"))[-last:]
    known = _known_sizes(database, project) if paths else {}
    for path in paths:
        try:
            size = path.stat().st_size
        except OSError:  # removed meanwhile
            continue
        if known.get(path.parent.name) != size and not goes_on(path.parent):
            found = measured_run(path.parent, project)
            add_run(database, found.record, samples=found.samples, fingerprint=found.fingerprint)


def measured_run(folder: Path, project: str) -> MeasuredRun:
    """What the history keeps of a run's folder. Raises OSError: its events cannot be read."""
    path = folder / EVENTS_FILE
    size = path.stat().st_size
    data, started_at, problem = _read(path)
    record = record_of(
        data, project=project, run_id=folder.name, started_at=started_at, events_bytes=size, problem=problem
    )
    return MeasuredRun(record=record, samples=samples_of(data), fingerprint=host_of(folder))


def add_run(
    database: Database,
    record: RunRecord,
    *,
    samples: Mapping[str, RecordedSamples] | None = None,
    fingerprint: Fingerprint | None = None,
) -> bool:
    """Add a run; whether it was new. One that is there already, by its content, is left as it is.

    A run of the same name with another content corrects the earlier one, which stays but no longer counts.

    Raises:
        DatabaseError: Nothing was added.
    """
    with database.writing() as connection:
        found = MeasuredRun(record=record, samples=samples or {}, fingerprint=fingerprint)
        return add_run_in(database, connection, found) is not None


def row_of(connection: Connection, record: RunRecord) -> int:
    """The row of a run that is there."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    wanted = select(runs.c.id).where(runs.c.content_hash == content_hash(record))
    return int(connection.execute(wanted).scalar_one())


def add_run_in(database: Database, connection: Connection, found: MeasuredRun) -> int | None:
    """The same within a transaction; the row of the run, None where it is there already."""
    record = found.record
    row = _add_row(database, connection, record)
    if row is None:
        return None
    ids = _series_ids(database, connection, record)
    _add_cases(connection, record.cases, ids, row)
    _add_samples(connection, found.samples, ids, row)
    if found.fingerprint is not None:
        _add_fingerprint(database, connection, found.record.project, found.fingerprint)
    return row


def drop_samples(database: Database, *, older_than_s: float) -> int:
    """Drop samples of runs that started longer ago; how many cases of runs lost theirs."""
    from sqlalchemy import delete, select

    from perfguard.history.tables import runs, samples

    old = select(runs.c.id).where(runs.c.started_at < time.time() - older_than_s)
    with database.writing() as connection:
        return connection.execute(delete(samples).where(samples.c.run_row.in_(old))).rowcount


def _add_row(database: Database, connection: Connection, record: RunRecord) -> int | None:
    """Row of the run; None where it is there."""
    from sqlalchemy import func, select

    from perfguard.history.tables import runs

    earlier = (
        select(func.max(runs.c.id))
        .where(runs.c.project == record.project, runs.c.run_id == record.run_id)
        .scalar_subquery()
    )
    code, other = record.candidate, record.baseline
    found: int | None = connection.execute(
        database.insertion(runs, runs.c.content_hash)
        .values(
            project=record.project,
            run_id=record.run_id,
            content_hash=content_hash(record),
            corrects=earlier,
            recorded_at=time.time(),
            started_at=record.started_at,
            mode=record.mode,
            suite=record.suite,
            machine_id=record.machine_id,
            outcome=record.outcome,
            exit_code=record.exit_code,
            source_id=code.source_id,
            stack_id=code.stack_id,
            commit=code.commit,
            is_paired=int(other is not None),
            baseline_source_id=other.source_id if other else None,
            baseline_stack_id=other.stack_id if other else None,
            baseline_commit=other.commit if other else None,
            events_bytes=record.events_bytes,
            cases=len(record.cases),
            problem=stored_json(record.problem) if record.problem else None,
        )
        .returning(runs.c.id)
    ).scalar()
    return found


def _series_ids(database: Database, connection: Connection, record: RunRecord) -> dict[str, int]:
    """Series of the run's cases, by case id; new ones are added."""
    from sqlalchemy import select

    from perfguard.history.tables import series

    if not record.cases:
        return {}
    machine_id = record.machine_id or ""
    known = select(series.c.case_id, series.c.id).where(
        series.c.project == record.project, series.c.machine_id == machine_id
    )
    found: dict[str, int] = dict(connection.execute(known).all())
    new = [case.case_id for case in record.cases if case.case_id not in found]
    if new:
        rows = [{"project": record.project, "case_id": case_id, "machine_id": machine_id} for case_id in new]
        connection.execute(database.insertion(series, series.c.project, series.c.case_id, series.c.machine_id), rows)
        found = dict(connection.execute(known).all())
    return found


def _add_cases(connection: Connection, cases: Sequence[CaseRecord], ids: Mapping[str, int], row: int) -> None:
    from perfguard.history.tables import effects, values

    rows = [
        {
            "series_id": ids[case.case_id],
            "run_row": row,
            "median_s": case.median_s,
            "spread_ppm": None if case.spread_ratio is None else round(case.spread_ratio * MILLION),
            "blocks": case.blocks,
        }
        for case in cases
    ]
    judged = [
        {
            "series_id": ids[case.case_id],
            "run_row": row,
            "outcome": case.outcome,
            "log_ratio": case.log_ratio,
            "lower": case.lower,
            "upper": case.upper,
        }
        for case in cases
        if case.outcome is not None
    ]
    if rows:
        connection.execute(values.insert(), rows)
    if judged:
        connection.execute(effects.insert(), judged)


def _add_samples(
    connection: Connection, found: Mapping[str, RecordedSamples], ids: Mapping[str, int], row: int
) -> None:
    from perfguard.history.tables import samples

    rows = [
        {"series_id": ids[case_id], "run_row": row, "content": zlib.compress(stored_json(each).encode())}
        for case_id, each in found.items()
        if case_id in ids
    ]
    if rows:
        connection.execute(samples.insert(), rows)


def _add_fingerprint(database: Database, connection: Connection, project: str, found: Fingerprint) -> None:
    from perfguard.history.tables import fingerprints

    row = {"project": project, "machine_id": found.machine_id, "stack_id": found.stack_id or ""}
    row["content"] = stored_json(found)
    connection.execute(database.insertion(fingerprints, *fingerprints.primary_key), row)


def _known_sizes(database: Database, project: str) -> dict[str, int]:
    """Size of the events of each recorded run when it was read, by the run's name."""
    from sqlalchemy import select

    from perfguard.history.tables import runs

    with database.reading() as connection:
        rows = select(runs.c.run_id, runs.c.events_bytes).where(runs.c.project == project).order_by(runs.c.id)
        return dict(connection.execute(rows).all())


def _read(path: Path) -> tuple[RunData, float, Fact | None]:
    """The fold over a recording, when it started, and what is wrong with it first."""
    tail, data, problems = EventTail(path), RunData(keeps_signals=False), list[Fact]()
    started_at: float | None = None
    has_more = True
    while has_more:
        update = tail.poll()
        has_more = update.has_more
        problems.extend(update.problems)
        if update.restarted:
            data, started_at = RunData(keeps_signals=False), None
        for seen in update.events:
            started_at = seen.t_wall if started_at is None else started_at
            data.add(seen.event)
    if data.start is None:
        problems.insert(0, fact("recording.no_start", severity=Severity.NOTABLE))
    return data, started_at or 0.0, problems[0] if problems else None


def _head_time(path: Path) -> float:
    """When a run started, by its first event."""
    update = EventTail(path, max_bytes=64 * 1024).poll()
    return update.events[0].t_wall if update.events else time.time()
