"""The history of a project, as `history`, the TUI and pages show it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from perfguard.config import LoadedConfig
from perfguard.errors import PerfguardError
from perfguard.history.changes import ChangePoint, cases_on_machines
from perfguard.history.database import Database, opened
from perfguard.history.project_names import project_name
from perfguard.history.queries import MAX_RUNS, read_log, read_points
from perfguard.history.recording import catch_up
from perfguard.history.states import read_states
from perfguard.host.probe import probe
from perfguard.records.facts import Fact
from perfguard.records.history import History, HistoryPoint
from perfguard.store.baselines import BaselineStore


@contextmanager
def history_of(loaded: LoadedConfig) -> Iterator[Database]:
    """The project's database, with all of its recorded runs that have ended.

    Raises:
        ConfigError: The setting names no database.
        DatabaseError: It cannot be reached.
    """
    with opened(loaded.config.database, loaded.project) as database:
        catch_up(database, loaded, last=MAX_RUNS)
        yield database


def problems_in(database: Database, project: str) -> dict[str, Fact]:
    """Why recordings among the newest runs could not be read whole, by run."""
    found = ((logged.run.run_id, logged.run.problem) for logged in read_log(database, project, last=MAX_RUNS))
    return {run_id: problem for run_id, problem in found if problem is not None}


def read_history(loaded: LoadedConfig, case_ids: Collection[str] | None = None) -> History:
    """The series of a project, and this machine's stored baselines beside them.

    Of the newest runs; of all cases without `case_ids`.

    Raises:
        ConfigError: The setting names no database.
        DatabaseError: It cannot be reached.
    """
    project = project_name(loaded)
    with history_of(loaded) as database:
        points = read_points(database, project, case_ids=case_ids, last=MAX_RUNS)
        problems = problems_in(database, project)
    try:
        machine_id = probe().machine_id
    except PerfguardError:  # `perfguard fingerprint` says why
        machine_id = None
    return History(
        points=points, baselines_s=_baselines_s(loaded, machine_id, case_ids), machine_id=machine_id, problems=problems
    )


def read_changes(loaded: LoadedConfig, points: Sequence[HistoryPoint]) -> tuple[ChangePoint, ...]:
    """The changes of all cases in these points, with what people said of them; those that need a look come first.

    Raises:
        DatabaseError: The database cannot be read.
    """
    with opened(loaded.config.database, loaded.project) as database:
        states = read_states(database, project_name(loaded))
    found = [change for case in cases_on_machines(points, states) for change in case.changes]
    return tuple(sorted(found, key=lambda change: (not change.is_of_the_code, -change.after.t_wall)))


def _baselines_s(loaded: LoadedConfig, machine_id: str | None, case_ids: Collection[str] | None) -> dict[str, float]:
    """Median of each case in this machine's stored baselines; of the configured suite where several hold a case."""
    store = BaselineStore(loaded.rules / loaded.config.baselines)
    found: dict[str, float] = {}
    try:
        places = [place for place in store.stored() if place.parent.name == machine_id]
        for place in sorted(places, key=lambda place: place.name == loaded.config.suite):
            found |= {case_id: noise.median_s for case_id, noise in store.load(place).noise.items()}
    except PerfguardError:  # said by `perfguard baseline show`; a series goes without its line
        return {}
    return {case_id: median_s for case_id, median_s in found.items() if case_ids is None or case_id in case_ids}
