"""Advice that a change calls for: what the candidate does and the baseline does not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfguard.profile.advice import reorders
from perfguard.records.steps.findings import Finding, Severity
from perfguard.records.steps.ops import Attribution, ChangeClass, OpKey, StepPhase

_MORE = frozenset(
    {ChangeClass.NEW, ChangeClass.MORE_CALLS, ChangeClass.SLOWER, ChangeClass.OTHER_IMPLEMENTATION},
)
"""Changes of ops that can give rise to a finding."""
_SEVERITIES = tuple(Severity)

Place = tuple[StepPhase, str]
"""Phase and module."""


def new_findings(
    baseline: Sequence[Finding], candidate: Sequence[Finding], comparison: Attribution
) -> tuple[Finding, ...]:
    """Findings that only the candidate has, or has in a graver form, in their order.

    Most rules have a threshold, and two runs of one step may lie on both sides of it. So where nothing changed at the
    places of a finding, it is not new; what is told of a whole process changes only with its environment.

    Args:
        baseline: Its findings.
        candidate: Its findings.
        comparison: Of the two, with all ops.
    """
    known = {(finding.id, finding.title): _SEVERITIES.index(finding.severity) for finding in reversed(baseline)}
    places = {_place(delta.key) for delta in comparison.deltas if delta.change in _MORE}
    return tuple(
        finding
        for finding in candidate
        if _SEVERITIES.index(finding.severity) < known.get((finding.id, finding.title), len(_SEVERITIES))
        and _has_cause(finding, comparison, places)
    )


def _has_cause(finding: Finding, comparison: Attribution, places: Collection[Place]) -> bool:
    """Whether something changed that the finding can come from."""
    if finding.since_baseline:
        return True
    if finding.ops:
        return any(_place(key) in places for key in finding.ops)
    if finding.id == reorders.ID:  # they are counted, so only more of them are news
        return any(change.rule == reorders.COUNTED_BY for change in comparison.census_changes)
    return finding.share is None or bool(comparison.census_changes)  # of a process; of other primitives


def _place(key: OpKey) -> Place:
    return key.phase, key.module
