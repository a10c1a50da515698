"""Lines that every output shows alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfguard.gate.calibration.error_rate import nominal
from perfguard.records.case_names import short_names
from perfguard.records.facts import Fact, Severity
from perfguard.records.result import RunResult
from perfguard.records.steps.ops import Attribution, OpCountChange
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import beyond_culprits, change_text, contradiction, culprit_texts
from perfguard.report.messages.catalog import describe
from perfguard.report.rows import PLAIN
from perfguard.units import format_count

SHOWN_CHANGES = 3  # Changes of op counts that are shown in full
_WORTH_A_LINE = (Outcome.REGRESSED, Outcome.IMPROVED)
SAME_OP_COUNTS = "same op counts: ops, kernels, copies and allocations per step are equal"


def signal_lines(verdict: Verdict) -> list[str]:
    """What changed beside wall time: `faults regressed (advisory): 0 → 120 in 12 paired blocks`.

    CPU seconds that only follow the time, or that the verdict names already, are left out.
    """
    return [
        f"{finding.signal} {finding.outcome.value}{'' if finding.gating else ' (advisory)'}: {describe(finding.fact)}"
        for finding in verdict.signals
        if finding.outcome in _WORTH_A_LINE and not (finding.signal == "cpu" and finding.outcome is verdict.outcome)
    ]


def blame_lines(verdict: Verdict, result: RunResult) -> list[str]:
    """Which ops a difference is in, and what changed by op counts: those that matter most, the others counted."""
    changes = beyond_culprits(result.op_count_changes.get(verdict.case_id, ()), attribution_of(verdict, result))
    return [
        *ops_lines(verdict, result),
        *change_lines("changed", "in op counts", changes),
        *unchanged_lines(verdict, result),
    ]


def unchanged_lines(verdict: Verdict, result: RunResult) -> list[str]:
    """That both arms have the same op counts; what differs from those of another machine, as far as it is not new."""
    new = [change.fact for change in result.op_count_changes.get(verdict.case_id, ())]
    stored = result.stored_op_count_changes.get(verdict.case_id, ())
    older = [change for change in stored if change.fact not in new]
    return [
        *([SAME_OP_COUNTS] if has_same_op_counts(verdict, result) else ()),
        *change_lines("changed since the stored op counts", "since the stored op counts", older),
    ]


def ops_lines(verdict: Verdict, result: RunResult) -> list[str]:
    """The culprits of a case that was profiled, and whether they contradict the verdict."""
    found = attribution_of(verdict, result)
    if found is None:
        return []
    doubt = contradiction(verdict, found.balance)
    return [*([describe(doubt)] if doubt else ()), *(f"culprit: {text}" for text in culprit_texts(found))]


def attribution_of(verdict: Verdict, result: RunResult) -> Attribution | None:
    """What the ops of a case say; None where it was not profiled."""
    return next((one for one in result.attributions if one.case_id == verdict.case_id), None)


def has_same_op_counts(verdict: Verdict, result: RunResult) -> bool:
    """Whether both arms were counted and equal; of an unchanged case that goes without saying, so never there."""
    changes = result.op_count_changes.get(verdict.case_id)
    return changes is not None and not changes and verdict.outcome not in PLAIN


def change_lines(heading: str, ending: str, changes: Sequence[OpCountChange]) -> list[str]:
    """`changed: …` for the first, which matter most, `and 4 smaller changes in op counts` for the others."""
    lines = [f"{heading}: {change_text(change)}" for change in changes[:SHOWN_CHANGES]]
    more = len(changes) - SHOWN_CHANGES
    return [*lines, f"and {format_count(more, 'smaller change')} {ending}"] if more > 0 else lines


def note_lines(result: RunResult, least: Severity = Severity.NOTABLE) -> list[str]:
    """What the reader must know beside the table, in order; without notes below `least`."""
    return [describe(note) for note in notes_of(result) if note.severity.is_at_least(least)]


def error_rate_of(result: RunResult) -> str:
    """What is known of the gate's error rate; empty where nothing was compared."""
    if result.gate is None:
        return ""
    return describe(result.error_rate or nominal(result.gate.policy.alpha))


def notes_of(result: RunResult) -> tuple[Fact, ...]:
    """All notes of a run and its gate, in order."""
    if result.gate is None:
        return result.notes
    return (*result.notes, *result.gate.notes, *result.gate.missing_signals)


def names_in(result: RunResult) -> Mapping[str, str]:
    """Short names of a result's cases, by id."""
    verdicts = result.gate.verdicts if result.gate is not None else ()
    return short_names([*(verdict.case_id for verdict in verdicts), *(case.case_id for case in result.measured)])


def name_in(result: RunResult, case_id: str) -> str:
    """What one of them is called."""
    return names_in(result).get(case_id, case_id)
