"""Lines that every output shows alike."""

from __future__ import annotations

from perfguard.model.result import RunResult
from perfguard.model.verdict import Outcome, Verdict

_WORTH_A_LINE = (Outcome.REGRESSED, Outcome.IMPROVED)


def signal_lines(verdict: Verdict) -> list[str]:
    """What changed beside wall time: `faults regressed (advisory): 0 → 120 in 12 paired blocks`.

    CPU seconds that only follow the time, or that the verdict names already, are left out.
    """
    return [
        f"{finding.signal} {finding.outcome.value}{'' if finding.gating else ' (advisory)'}: {finding.reason}"
        for finding in verdict.signals
        if finding.outcome in _WORTH_A_LINE and not (finding.signal == "cpu" and finding.outcome is verdict.outcome)
    ]


def note_lines(result: RunResult) -> list[str]:
    """Everything that the reader must know beside the table, in order."""
    if result.gate is None:
        return list(result.notes)
    missing = result.gate.missing_signals
    return [
        *result.notes,
        *result.gate.notes,
        *([f"not measured on this machine: {'; '.join(missing)}"] if missing else ()),
    ]
