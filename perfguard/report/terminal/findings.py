"""Findings as people read them: what was seen, where, what it may bring, how to find out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.report.escaping import code, escape
from perfguard.units import format_share, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {Severity.GRAVE: "bold red", Severity.NOTABLE: "yellow", Severity.HINT: "cyan"}
_LABEL_WIDTH = 8


def render_findings(findings: Sequence[Finding]) -> list[RenderableType]:
    """What to print, in order; one line where nothing was found."""
    from rich.text import Text

    if not findings:
        return [Text("findings   none", style="dim")]
    parts: list[RenderableType] = []
    for finding in findings:
        parts.append(
            Text.assemble(
                (f"{finding.severity.value:<{_LABEL_WIDTH}}", _STYLES[finding.severity]), printable(_heading(finding))
            )
        )
        parts += [Text(printable(f"  {label:<{_LABEL_WIDTH}}{text}")) for label, text in _rows(finding)]
    return parts


def render_findings_markdown(findings: Sequence[Finding]) -> str:
    """A list for a comment or a job summary; empty where nothing was found."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"- **{finding.severity.value}**: {escape(_heading(finding))}")
        lines += [f"  - {label}: {_shown(label, text)}" for label, text in _rows(finding)]
    return "\n".join(lines)


def _heading(finding: Finding) -> str:
    """`oneDNN reorders tensors (12 % of the step) [reorders]`."""
    share = "" if finding.share is None else f" ({format_share(finding.share)} of the step)"
    return f"{finding.title}{share} [{finding.id}]"


def _rows(finding: Finding) -> list[tuple[str, str]]:
    """Labels with their texts; what is not known is left out."""
    rows = [
        *(("seen", text) for text in finding.seen),
        ("where", finding.where),
        ("since", finding.since_baseline),
        ("gain", _told(finding.gain)),
        ("try", finding.trial.change),
        (_COMMAND, finding.trial.command),
    ]
    return [(label, text) for label, text in rows if text]


_COMMAND = "run"


def _told(gain: Gain) -> str:
    return f"{gain.text} ({gain.source})" if gain.source else gain.text


def _shown(label: str, text: str) -> str:
    return code(text) if label == _COMMAND else escape(text)
