"""Schedules: work that is submitted at its time, whenever its branch has moved since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

from perfguard.codec import from_builtins
from perfguard.errors import ArmError, NothingSelectedError, UsageError
from perfguard.fleet.shards import now_in, submit_in
from perfguard.history.database import Database
from perfguard.history.run_records import stored_json
from perfguard.records.fleet import Schedule
from perfguard.runner.arms.git import run_git


def next_time(cron: str, after_s: float) -> float:
    """When a cron expression comes next, in UTC.

    Raises:
        UsageError: It is none, or croniter is not installed.
    """
    try:
        from croniter import CroniterBadCronError, CroniterBadDateError, croniter
    except ModuleNotFoundError:
        raise UsageError("schedules need croniter, which is not installed: pip install 'perfguard[fleet]'") from None
    try:
        moment = croniter(cron, datetime.fromtimestamp(after_s, tz=timezone.utc)).get_next(datetime)
    except (CroniterBadCronError, CroniterBadDateError, ValueError, AttributeError):
        raise UsageError(f"--cron {cron!r} is no cron expression; every night at two is '0 2 * * *'") from None
    return float(moment.timestamp())


def tip_of(repository: str, branch: str) -> str:
    """Commit that a branch of a repository is at. Raises ArmError: it cannot be asked, or has no such branch."""
    said = run_git(Path.cwd(), "ls-remote", "--", repository, f"refs/heads/{branch}").decode("ascii").split()
    if not said:
        raise ArmError(f"{repository} has no branch {branch!r}; see `git ls-remote --heads {repository}`")
    return said[0]


def save_schedule(database: Database, schedule: Schedule) -> None:
    """Add a schedule, or change the one of that name."""
    from perfguard.history.tables import fleet_schedules as schedules

    key = {"project": schedule.project, "name": schedule.name}
    content = {"content": stored_json(schedule), "due_at": schedule.due_at}
    with database.writing() as connection:
        connection.execute(database.insertion(schedules, *schedules.primary_key).values(**key, **content))
        same = schedules.update().where(schedules.c.project == schedule.project, schedules.c.name == schedule.name)
        connection.execute(same.values(**content))


def remove_schedule(database: Database, project: str, name: str) -> None:
    """Raises NothingSelectedError: there is no such schedule."""
    from perfguard.history.tables import fleet_schedules as schedules

    with database.writing() as connection:
        gone = schedules.delete().where(schedules.c.project == project, schedules.c.name == name)
        if not connection.execute(gone).rowcount:
            raise NothingSelectedError(f"there is no schedule {name!r} of {project}")


def read_schedules(database: Database, *, project: str | None = None) -> tuple[Schedule, ...]:
    """All schedules, or those of a project, by when they are due."""
    from sqlalchemy import select

    from perfguard.history.tables import fleet_schedules as schedules

    wanted = select(schedules.c.content).order_by(schedules.c.due_at)
    if project is not None:
        wanted = wanted.where(schedules.c.project == project)
    with database.reading() as connection:
        return tuple(
            from_builtins(json.loads(content), Schedule, source="a schedule")
            for content in connection.execute(wanted).scalars()
        )


def submit_due(database: Database) -> Sequence[int]:
    """Submit what is due and has moved; each schedule once, however many processes try. The new submissions.

    A repository that cannot be reached leaves its schedule for the next time.
    """
    from sqlalchemy import select

    from perfguard.history.tables import fleet_schedules as schedules

    with database.reading() as connection:
        now = connection.execute(select(now_in(database))).scalar_one()
    submitted: list[int] = []
    for schedule in read_schedules(database):
        if schedule.due_at > now:
            break
        try:
            tip = tip_of(schedule.work.repository, schedule.branch)
        except ArmError:
            tip = schedule.work.candidate
        later = replace(
            schedule,
            due_at=next_time(schedule.cron, now),
            work=replace(schedule.work, baseline=schedule.work.candidate, candidate=tip),
        )
        mine = schedules.update().where(
            schedules.c.project == schedule.project,
            schedules.c.name == schedule.name,
            schedules.c.due_at == schedule.due_at,
        )
        shards = [(name, patterns) for name in schedule.machine_classes for patterns in schedule.groups]
        author = f"schedule {schedule.name}"
        with database.writing() as connection:
            is_mine = connection.execute(mine.values(content=stored_json(later), due_at=later.due_at)).rowcount
            if is_mine and tip != schedule.work.candidate:
                submitted.append(
                    submit_in(database, connection, later.work, shards, engine=schedule.engine, author=author)
                )
    return submitted
