"""What the cases of a result are called wherever people read it."""

from __future__ import annotations

from collections.abc import Mapping

from perfguard.records.case_names import short_names
from perfguard.records.result import RunResult


def names_in(result: RunResult) -> Mapping[str, str]:
    """Short names of a result's cases, by id."""
    verdicts = result.gate.verdicts if result.gate is not None else ()
    return short_names([*(verdict.case_id for verdict in verdicts), *(case.case_id for case in result.measured)])


def name_in(result: RunResult, case_id: str) -> str:
    """What one of them is called."""
    return names_in(result).get(case_id, case_id)
