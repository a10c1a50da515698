"""Cases that have become slower little by little, each time by less than a gate fails for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfguard.config import LoadedConfig
from perfguard.history.changes import CaseOnMachine, cases_on_machines
from perfguard.history.database import is_missing, opened
from perfguard.history.project_names import project_name
from perfguard.history.queries import MAX_RUNS, read_points
from perfguard.history.states import read_states
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.history import HistoryPoint

COMMITS = 30  # Newest ones that a slip is said of


def read_slips(loaded: LoadedConfig, machine_id: str, case_ids: Collection[str]) -> tuple[Fact, ...]:
    """How much slower each of these cases became on this machine over its newest commits; only those that did.

    Raises:
        ConfigError: The setting names no database.
        DatabaseError: It cannot be reached.
    """
    if is_missing(loaded.config.database, loaded.project):
        return ()
    project = project_name(loaded)
    with opened(loaded.config.database, loaded.project) as database:
        points = read_points(database, project, case_ids=case_ids, last=MAX_RUNS)
        states = read_states(database, project)
    found = cases_on_machines((point for point in points if point.machine_id == machine_id), states)
    return tuple(filter(None, map(slip_of, found)))


def slip_of(case: CaseOnMachine) -> Fact | None:
    """How much slower a case became over its newest commits, by the changes that the code may be the reason of."""
    commits = _newest_commits(case.points)
    changes = [change for change in case.changes if change.is_of_the_code and change.after.commit in commits]
    total = sum(change.log_ratio for change in changes)
    if not changes or sum(change.lower for change in changes) <= 0:
        return None
    since = changes[0].before
    return fact(
        "history.slipped",
        severity=Severity.NOTABLE,
        case_id=case.case_id,
        log_ratio=total,
        commits=len(commits),
        changes=len(changes),
        since=(since.commit or since.run_id)[:12],
    )


def _newest_commits(points: Sequence[HistoryPoint]) -> set[str]:
    found: dict[str, None] = {}
    for point in reversed(points):
        if point.commit is not None and len(found) < COMMITS:
            found[point.commit] = None
    return set(found)
