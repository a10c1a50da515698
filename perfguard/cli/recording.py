"""What commands write into the history, and read from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfguard.errors import NothingSelectedError, PerfguardError
from perfguard.units import format_count, printable

if TYPE_CHECKING:
    from perfguard.config import LoadedConfig
    from perfguard.history.changes import CaseOnMachine
    from perfguard.history.database import Database
    from perfguard.records.run_data import RunData


def recorder(loaded: LoadedConfig) -> Callable[[Path, RunData], None]:
    """What a request calls at its end."""
    return partial(_record, loaded)


def _record(loaded: LoadedConfig, folder: Path, data: RunData) -> None:
    """Record a run; where that fails, say so and go on: the next `perfguard history` reads its folder."""
    from perfguard.history.recording import record_run

    try:
        record_run(loaded, folder, data)
    except (PerfguardError, OSError) as error:
        click.echo(f"perfguard: the run is not in the history yet: {printable(str(error))}", err=True)


def read_cases(database: Database, project: str, case: str | None) -> tuple[tuple[CaseOnMachine, ...], tuple[str, ...]]:
    """The chosen cases on each machine, and what could not be read; all cases without a name or pattern.

    Raises:
        NothingSelectedError: No recorded run holds such a case.
    """
    from perfguard.benchmarks.selection import did_you_mean, names_case
    from perfguard.history.changes import cases_on_machines
    from perfguard.history.queries import MAX_RUNS, read_case_ids, read_points
    from perfguard.history.reading import problems_in
    from perfguard.history.states import read_states
    from perfguard.records.case_names import short_names
    from perfguard.report.case_history import unread_runs

    known = short_names(read_case_ids(database, project))
    chosen = [case_id for case_id, name in known.items() if case in (None, name) or names_case(case, case_id)]
    if case is not None and not chosen:
        nearest = did_you_mean(case, [*known.values(), *known])
        raise NothingSelectedError(f"no recorded run holds a case {case!r}{nearest}; `perfguard history` lists all")
    points = read_points(database, project, case_ids=chosen, last=None if case else MAX_RUNS)
    states, problems = read_states(database, project), problems_in(database, project)
    return cases_on_machines(points, states), unread_runs(problems)


def without_removed(
    loaded: LoadedConfig, found: tuple[CaseOnMachine, ...], *, keeps_points: bool
) -> tuple[CaseOnMachine, ...]:
    """Cases whose benchmark the project still has; with `keeps_points` the others stay, without their changes."""
    from msgspec.structs import replace

    from perfguard.runner.suites import has_benchmark

    is_known = has_benchmark(loaded, [each.case_id for each in found if each.changes or not keeps_points])
    kept = tuple(each for each in found if is_known(each.case_id))
    gone = {each.case_id for each in found if not is_known(each.case_id)}
    if gone:
        click.echo(
            f"{format_count(len(gone), 'case')} of benchmarks that the project no longer has: changes are not shown",
            err=True,
        )
    if not keeps_points:
        return kept
    return tuple(each if each in kept else replace(each, changes=()) for each in found)
