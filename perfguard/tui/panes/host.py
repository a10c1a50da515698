"""The machine in words: the fingerprint's lines with the topology drawn."""

from __future__ import annotations

from perfguard.records.machine.fingerprint import CpuSelection, Fingerprint
from perfguard.report.terminal.fingerprint import render_fingerprint
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line, wrapped
from perfguard.tui.drawing.topology import draw_topology

_LABELS = 18
"""Columns of the labels in the fingerprint's text."""


def host_lines(
    found: Fingerprint | None, selection: CpuSelection | None, width: int, glyphs: Glyphs, *, now: str = ""
) -> list[Line]:
    """Topology first, then all facts.

    Args:
        found: The run's machine; None where it is not recorded yet.
        selection: Where the run is pinned.
        width: Columns.
        glyphs: What to draw with.
        now: Frequency, temperature and load of this moment; empty where unknown.
    """
    if found is None:
        return wrapped("the machine is written down once the arms were looked at", width, Role.MUTED)
    lines = [line(Span(found.machine_id, Role.STRONG))]
    lines += wrapped(now, width, Role.ACCENT) if now else []
    lines += [EMPTY, *draw_topology(found.topology, selection, width, glyphs), EMPTY]
    for text in render_fingerprint(found).splitlines():
        lines += _fact(text, width)
    return lines


def _fact(text: str, width: int) -> list[Line]:
    """A line of the fingerprint: titles and notes as they are, labels and values apart."""
    label, value = text[:_LABELS].strip(), text[_LABELS:].strip()
    if not label:
        return [EMPTY]
    if not value or text[_LABELS - 1] != " ":
        return wrapped(text.strip(), width, Role.PLAIN if text.startswith(" ") else Role.TITLE, indent=2)
    rest = wrapped(value, max(8, width - _LABELS))
    return [
        (Span(f"{label if index == 0 else '':<{_LABELS}}", Role.MUTED), *content) for index, content in enumerate(rest)
    ]
