"""What people say of changes, kept in the history with who and why."""

from __future__ import annotations

import getpass
import time
from contextlib import suppress
from pathlib import Path

from perfguard.errors import ArmError, UsageError
from perfguard.history.changes import ChangePoint, ChangeState, StatedChange, States
from perfguard.history.database import Database
from perfguard.runner.arms.git import run_git


def read_states(database: Database, project: str) -> States:
    """What was said of a project's changes. Raises DatabaseError: the database cannot be read."""
    from sqlalchemy import select

    from perfguard.history.tables import change_states, series

    question = (
        select(
            series.c.case_id,
            series.c.machine_id,
            change_states.c.run_id,
            change_states.c.state,
            change_states.c.author,
            change_states.c.reason,
            change_states.c.stated_at,
        )
        .join(series, series.c.id == change_states.c.series_id)
        .where(series.c.project == project)
        .order_by(change_states.c.id)
    )
    found: dict[tuple[str, str | None], list[StatedChange]] = {}
    with database.reading() as connection:
        for case_id, machine_id, run_id, state, author, reason, stated_at in connection.execute(question):
            said = StatedChange(
                run_id=run_id, state=ChangeState(state), author=author, reason=reason, stated_at=stated_at
            )
            found.setdefault((case_id, machine_id or None), []).append(said)
    return found


def state_change(
    database: Database, project: str, change: ChangePoint, state: ChangeState, *, author: str, reason: str
) -> StatedChange:
    """Say something of a change; what was said before stays in the database.

    Raises:
        DatabaseError: The database cannot be written.
    """
    from sqlalchemy import select

    from perfguard.history.tables import change_states, series

    point = change.after
    said = StatedChange(run_id=point.run_id, state=state, author=author, reason=reason, stated_at=time.time())
    of = select(series.c.id).where(
        series.c.project == project, series.c.case_id == point.case_id, series.c.machine_id == (point.machine_id or "")
    )
    with database.writing() as connection:
        connection.execute(
            change_states.insert().values(
                series_id=connection.execute(of).scalar_one(),
                run_id=said.run_id,
                state=said.state.value,
                author=said.author,
                reason=said.reason,
                stated_at=said.stated_at,
            )
        )
    return said


def author_in(project: Path) -> str:
    """`Name <address>` as git knows it, else the user's name."""
    with suppress(ArmError):
        name, address = (
            run_git(project, "config", "--get", f"user.{key}").decode().strip() for key in ("name", "email")
        )
        return f"{name} <{address}>"
    return getpass.getuser()


def find_change(changes: tuple[ChangePoint, ...], name: str) -> ChangePoint:
    """The change whose first run, or its commit, begins with a name.

    Raises:
        UsageError: There is none, or several.
    """
    found = [each for each in changes if each.after.run_id == name or (each.after.commit or "").startswith(name)]
    if len(found) == 1:
        return found[0]
    if not changes:
        raise UsageError(f"this case has no recorded change, so {name!r} names none; `perfguard history CASE` shows it")
    known = ", ".join((each.after.commit or "")[:12] or each.after.run_id for each in changes)
    raise UsageError(f"{name!r} names {len(found)} changes of this case; its changes begin at: {known}")
