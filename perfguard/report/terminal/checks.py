"""What `perfguard doctor` prints: what slows or disturbs measurements on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfguard.records.machine.fingerprint import CheckResult, CheckStatus
from perfguard.report.messages.catalog import describe

if TYPE_CHECKING:
    from rich.console import RenderableType

_CHECK_SIGNS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.WARN: ("!", "yellow"),
    CheckStatus.FAIL: ("✗", "bold red"),
    CheckStatus.UNKNOWN: ("?", "dim"),
    CheckStatus.NOT_APPLICABLE: ("-", "dim"),
}


def render_checks(checks: Sequence[CheckResult]) -> list[RenderableType]:
    """Doctor's rows: sign, name, what was seen; for warnings and failures also why and the fix."""
    parts: list[RenderableType] = []
    width = max(len(check.id) for check in checks)
    indent = " " * (width + 4)
    for check in checks:
        sign, style = _CHECK_SIGNS[check.status]
        parts.append(Text.assemble((f"{sign} {check.id:<{width}}  ", style), describe(check.observed)))
        if check.status in (CheckStatus.WARN, CheckStatus.FAIL):
            parts.append(Text(f"{indent}why: {describe(check.why)}", style="dim"))
            if check.fix:
                parts.append(Text(f"{indent}fix: {describe(check.fix)}"))
    bad = sum(check.status in (CheckStatus.WARN, CheckStatus.FAIL) for check in checks)
    parts.append(f"{len(checks)} checks, {f'{bad} to look at' if bad else 'nothing to do'}")
    return parts
