"""Why a gate could not judge by what a file holds; nothing is filled in or guessed."""

from __future__ import annotations

from perfguard.integrations.formats.series import SECONDS, ImportedSeries, ImportedSuite

MIN_PROCESSES = 2
"""Fewer say nothing on how processes differ."""

NO_CANARY = "no canary was timed beside it, so a slower machine cannot be told from slower code"


def comparison_objection(series: ImportedSeries) -> str | None:
    """Why a series cannot be compared with another file's at all; None where it can."""
    if series.unit != SECONDS:
        return "it is not a time in seconds"
    if series.samples is None:
        return "it holds no raw samples, only a summary"
    if not series.has_processes:
        return "it does not tell which process a sample is from, so how processes differ is unknown"
    if len(series.samples) < MIN_PROCESSES:
        return f"all its samples are from one process; at least {MIN_PROCESSES} are needed to know how processes differ"
    return None


def gate_objection(series: ImportedSeries) -> str | None:
    """Why a gate could not judge by a series; None where it could, as by rounds of a stored baseline."""
    objection = comparison_objection(series)
    return objection if objection is not None or has_canary(series) else NO_CANARY


def has_canary(series: ImportedSeries) -> bool:
    """Whether every process timed the canary."""
    return bool(series.samples) and all(process.canary_s for process in series.samples or ())


def objections_of(suite: ImportedSuite) -> dict[str, tuple[str, ...]]:
    """The series of a suite by what a gate would object to; empty where it could judge by all of them."""
    found: dict[str, list[str]] = {}
    for series in suite.series:
        objection = gate_objection(series)
        if objection is not None:
            found.setdefault(objection, []).append(series.name)
    return {objection: tuple(names) for objection, names in found.items()}
