"""Cases that have become slower little by little, each time by less than a gate fails for.

Two kinds of evidence: changes of level over the runs' own times, which say when, but need five runs at each level; and
the sum of gates of each commit against the one before, which the host's changes from day to day do not touch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from perfguard.config import LoadedConfig
from perfguard.history.changes import CaseOnMachine, cases_on_machines
from perfguard.history.database import is_missing, opened
from perfguard.history.pairs import HALF_WIDTH, PairedEffect, pooled, read_pairs
from perfguard.history.project_names import project_name
from perfguard.history.queries import MAX_RUNS, read_points
from perfguard.history.states import read_states
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.history import HistoryPoint

COMMITS = 30  # Newest ones that a slip is said of
_LEAST_LINKS = 2  # Of a chain of gates; one gate says itself what it found
_LEAST_Z = 3.0  # Standard errors of a chain's sum: every gate looks at each of its cases


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
        pairs = read_pairs(database, project, machine_id, case_ids, last=MAX_RUNS)
    found = cases_on_machines((point for point in points if point.machine_id == machine_id), states)
    slips = {slip.subject.case_id: slip for slip in filter(None, map(slip_of, found))}
    for case_id in case_ids:
        slip = slip_in_pairs([pair for pair in pairs if pair.case_id == case_id])
        if slip is not None:
            slips.setdefault(case_id, slip)
    return tuple(slips.values())


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


def slip_in_pairs(pairs: Sequence[PairedEffect]) -> Fact | None:
    """How much slower a case became over a chain of gates, each of a commit against the one of the gate before.

    `pairs` are of one case in the order of time; the chain begins at the newest. Independent effects add up, and so do
    their variances.
    """
    by_commit: dict[str, list[PairedEffect]] = {}
    for pair in pairs:
        by_commit.setdefault(pair.commit, []).append(pair)
    commit = pairs[-1].commit if pairs else ""
    total = variance = 0.0
    links = 0
    while links < COMMITS and (gates := by_commit.pop(commit, None)):
        commit = gates[-1].baseline_commit
        same = [(gate.log_ratio, gate.lower, gate.upper) for gate in gates if gate.baseline_commit == commit]
        mean, lower, upper = pooled(same)
        total += mean
        variance += ((upper - lower) / 2 / HALF_WIDTH) ** 2
        links += 1
    if links < _LEAST_LINKS or total <= _LEAST_Z * math.sqrt(variance):
        return None
    half = HALF_WIDTH * math.sqrt(variance)
    return fact(
        "history.slipped_in_pairs",
        severity=Severity.NOTABLE,
        case_id=pairs[-1].case_id,
        log_ratio=total,
        lower_log_ratio=total - half,
        upper_log_ratio=total + half,
        commits=links,
        since=commit[:12],
    )


def _newest_commits(points: Sequence[HistoryPoint]) -> set[str]:
    found: dict[str, None] = {}
    for point in reversed(points):
        if point.commit is not None and len(found) < COMMITS:
            found[point.commit] = None
    return set(found)
