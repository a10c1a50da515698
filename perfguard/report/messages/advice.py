"""Findings in words: title, what to try, what it brought elsewhere, and where in the step."""

from __future__ import annotations

from perfguard.records.steps.findings import PREFIX, Finding
from perfguard.records.steps.ops import StepPhase
from perfguard.report.messages.catalog import describe
from perfguard.report.messages.message import UNKNOWN, sections
from perfguard.report.messages.template import fill


def title_of(finding: Finding) -> str:
    """Its headline; the code where a newer version wrote it."""
    return _text(finding, "title", "text") or finding.code


def change_of(finding: Finding) -> str:
    """What to try; empty for a code of a newer version."""
    return _text(finding, "change", "change")


def gain_of(finding: Finding) -> str:
    """What following it brought elsewhere, perfguard's measurements first; empty for a code of a newer version."""
    known = _text(finding, "gain", "gain")
    if not finding.measured:
        return known
    return "; ".join([*map(describe, finding.measured), *([known] if known != UNKNOWN else [])])


def _text(finding: Finding, recorded_as: str, field: str) -> str:
    """As an older version recorded it, else from the catalogue."""
    recorded = finding.values.get(recorded_as)
    advice = sections()["advice"].get(f"{PREFIX}{finding.code.removeprefix(PREFIX)}")
    if recorded is not None or advice is None:
        return str(recorded or "")
    return fill(getattr(advice, field), finding)


def where_of(finding: Finding) -> str:
    """`forward and backward of ResNet.layer3, 4 places (train.py:88)`; empty where it has no place."""
    if (recorded := finding.values.get("where")) is not None:
        return str(recorded)
    if not finding.phases:
        return ""
    subject, *earlier, last = finding.subject, *(phase.value for phase in finding.phases)
    phases = f"{', '.join(earlier)} and {last}" if earlier else last
    if subject.op:
        phases = subject.op if finding.phases == (StepPhase.OPTIMIZER,) else f"{phases} of {subject.op}"
    places = f", {finding.places} places" if finding.places > 1 else ""
    return f"{phases}{places}{f' ({subject.place})' if subject.place else ''}"
