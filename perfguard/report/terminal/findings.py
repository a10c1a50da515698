"""Findings as people read them: what was seen, where, what it may bring, how to find out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.records.facts import Severity
from perfguard.records.steps.findings import Finding
from perfguard.report.escaping import code, escape
from perfguard.report.messages.advice import change_of, gain_of, title_of, where_of
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.report.terminal.tables import texts
from perfguard.units import format_share, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Severity.GRAVE: "bold red", Severity.NOTABLE: "yellow", Severity.INFO: "cyan"}
_LABEL_WIDTH = 8
COMMAND = "then"  # Label of what is typed once the advice is followed


def render_findings(findings: Sequence[Finding]) -> list[RenderableType]:
    """What to print, in order; one line where nothing was found."""
    from rich.text import Text

    if not findings:
        return texts("findings   none", style="dim")
    parts: list[RenderableType] = []
    for finding in findings:
        severity = (f"{finding.severity.value:<{_LABEL_WIDTH}}", _STYLES[finding.severity])
        parts.append(Text.assemble(severity, printable(finding_heading(finding))))
        parts += texts(*(f"  {label:<{_LABEL_WIDTH}}{text}" for label, text in finding_rows(finding)))
    return parts


def render_findings_markdown(findings: Sequence[Finding]) -> str:
    """A list for a comment or a job summary; empty where nothing was found."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"- **{finding.severity.value}**: {escape(finding_heading(finding))}")
        lines += [
            f"  - {label}: {code(text) if label == COMMAND else escape(text)}" for label, text in finding_rows(finding)
        ]
    return "\n".join(lines)


def finding_heading(finding: Finding) -> str:
    """`oneDNN reorders tensors (12 % of the step) [reorders]`."""
    share = "" if finding.share is None else f" ({format_share(finding.share)} of the step)"
    return f"{title_of(finding)}{share} [{finding.id}]"


def finding_rows(finding: Finding) -> list[tuple[str, str]]:
    """Labels with their texts; what is not known is left out."""
    rows = [
        *(("seen", describe(fact)) for fact in finding.seen),
        ("where", where_of(finding)),
        ("since", describe_all(finding.since_baseline)),
        ("gain", gain_of(finding)),
        ("try", change_of(finding)),
        (COMMAND, finding.command),
    ]
    return [(label, text) for label, text in rows if text]
