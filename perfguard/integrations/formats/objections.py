"""Why a gate could not judge by what a file holds; nothing is filled in or guessed."""

from __future__ import annotations

from perfguard.integrations.formats.series import SECONDS, ImportedSeries, ImportedSuite, Objection
from perfguard.records.facts import Fact, fact

MIN_PROCESSES = 2
"""Fewer say nothing on how processes differ."""


def comparison_objection(series: ImportedSeries, *, place: str | None = None) -> Fact | None:
    """Why a series cannot be compared with another file's at all; None where it can.

    Args:
        series: The series.
        place: The file, where two are compared.
    """
    if series.unit != SECONDS:
        return fact("import.not_a_time", place=place)
    if series.samples is None:
        return fact("import.only_a_summary", place=place)
    if not series.has_processes:
        return fact("import.unknown_processes", place=place)
    if len(series.samples) < MIN_PROCESSES:
        return fact("import.too_few_processes", place=place, needed_processes=MIN_PROCESSES)
    return None


def gate_objection(series: ImportedSeries) -> Fact | None:
    """Why a gate could not judge by a series; None where it could, as by rounds of a stored baseline."""
    objection = comparison_objection(series)
    return objection if objection is not None or has_canary(series) else fact("import.no_control")


def has_canary(series: ImportedSeries) -> bool:
    """Whether every process timed the canary."""
    return bool(series.samples) and all(process.canary_s for process in series.samples or ())


def objections_of(suite: ImportedSuite) -> tuple[Objection, ...]:
    """What a gate would object to, each with its series; empty where it could judge by all of them."""
    found: dict[str, list[str]] = {}
    facts: dict[str, Fact] = {}
    for series in suite.series:
        objection = gate_objection(series)
        if objection is not None:
            facts[objection.code] = objection
            found.setdefault(objection.code, []).append(series.name)
    return tuple(Objection(fact=facts[code], series=tuple(names)) for code, names in found.items())
