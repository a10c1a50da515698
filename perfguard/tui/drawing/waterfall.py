"""Where the difference between two steps went: from the baseline's step to the candidate's, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from perfguard.records.steps.ops import Attribution
from perfguard.report.step_parts import Part, parts_of
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import position
from perfguard.tui.drawing.spans import Line, Role, Span, cut, fitted, line
from perfguard.units import format_seconds, format_signed_seconds

_VALUE_WIDTH = 11


def plot_waterfall(attribution: Attribution, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One line a part, each bar beginning where the one above ends; both steps at top and bottom.

    Args:
        attribution: What to show.
        width: Columns.
        height: Lines; parts that do not fit are summed up as `further parts`.
        glyphs: What to draw with.
    """
    balance = attribution.balance
    parts = _joined(parts_of(attribution), max(1, height - 2))
    names = ["baseline", *(part.name for part in parts), "candidate"]
    name_width = min(max(cell_len(name) for name in names), max(8, width // 3))
    bar_width = width - name_width - _VALUE_WIDTH - 2
    ends = _ends(balance.baseline_s, parts)
    low, high = _axis(balance.baseline_s, balance.candidate_s, ends)
    lines = [_total("baseline", balance.baseline_s, Role.BASELINE, name_width)]
    at = balance.baseline_s
    for part in parts:
        role = Role.SLOWER if part.value_s > 0 else Role.FASTER
        bar = _bar((at, at + part.value_s), (low, high), bar_width, glyphs, role=role)
        value = f"{format_signed_seconds(part.value_s):>{_VALUE_WIDTH}}"
        lines.append((*fitted(line(cut(part.name, name_width)), name_width), Span(f" {value} ", role), *bar))
        at += part.value_s
    lines.append(_total("candidate", balance.candidate_s, Role.CANDIDATE, name_width))
    return lines[: max(1, height)]


def _joined(parts: Sequence[Part], most: int) -> list[Part]:
    if len(parts) <= most:
        return list(parts)
    rest = parts[most - 1 :]
    return [*parts[: most - 1], Part("further parts", sum(part.value_s for part in rest))]


def _ends(start_s: float, parts: Sequence[Part]) -> list[float]:
    ends = [start_s]
    for part in parts:
        ends.append(ends[-1] + part.value_s)
    return ends


def _axis(baseline_s: float, candidate_s: float, ends: Sequence[float]) -> tuple[float, float]:
    """The differences fill the bars; the steps themselves are only written."""
    low, high = min(*ends, baseline_s, candidate_s), max(*ends, baseline_s, candidate_s)
    return (low, high) if high > low else (low, low + 1.0)


def _bar(span: tuple[float, float], axis: tuple[float, float], width: int, glyphs: Glyphs, *, role: Role) -> Line:
    if width < 2:
        return ()
    first, last = sorted(position(value, *axis, width) for value in span)
    length = max(1, last - first)
    return line(" " * min(first, width - length), Span(glyphs.block * length, role))


def _total(name: str, value_s: float, role: Role, name_width: int) -> Line:
    return (
        *fitted(line(Span(cut(name, name_width), role)), name_width),
        Span(f" {format_seconds(value_s):>{_VALUE_WIDTH}}", role),
    )
