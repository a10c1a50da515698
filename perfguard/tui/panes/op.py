"""Everything about one row of the ops: full shapes, interval, source, implementation."""

from __future__ import annotations

from perfguard.records.steps.ops import Attribution, Culprit, OpDelta
from perfguard.report.culprits import change_text as counted_text
from perfguard.report.culprits import step_text
from perfguard.report.messages.catalog import describe
from perfguard.report.op_tree import OpNode, OpRow
from perfguard.report.terminal.ops import balance_line
from perfguard.tui.drawing.spans import Line, Role, Span, line, wrapped
from perfguard.tui.tables.ops import called_text, change_text, role_of_delta
from perfguard.units import format_seconds, format_seconds_interval, format_share, format_signed_seconds


def op_lines(row: OpRow, attribution: Attribution | None, width: int) -> list[Line]:
    """What the table has no room for.

    Args:
        row: The row under the cursor.
        attribution: Of its case, for the culprits that it belongs to.
        width: Columns.
    """
    node = row.node
    if node.op_counts is not None:
        change = node.op_counts
        lines = wrapped(counted_text(change), width, Role.STRONG, indent=2)
        place = f" of {change.module}" if change.module else ""
        return [
            *lines,
            line(f"{change.rule} in {change.phase.value}{place}: {change.before} → {change.after} in a step"),
            line(Span("counted exactly, not timed", Role.MUTED)),
        ]
    if node.delta is None:
        return _sum_lines(node, row.share, width)
    return [*_delta_lines(node, node.delta, row.share, width), *_blame_lines(node.delta, attribution, width)]


def _sum_lines(node: OpNode, share: float | None, width: int) -> list[Line]:
    part = f", {format_share(share)} of the step's difference" if share is not None else ""
    return [
        *wrapped(f"{node.level.value} {node.name}", width, Role.STRONG, indent=2),
        line(Span(format_signed_seconds(node.delta_s), role_of_delta(node)), part),
        line(f"baseline {format_seconds(node.baseline_s)} → candidate {format_seconds(node.candidate_s)}"),
        line(Span(f"its own ops {format_signed_seconds(node.own_delta_s)}, {node.changed} changed below", Role.MUTED)),
    ]


def _delta_lines(node: OpNode, delta: OpDelta, share: float | None, width: int) -> list[Line]:
    key = delta.key
    known = format_seconds_interval(delta.lower_s, delta.upper_s)
    interval = ", interval unknown" if known is None else f" {known}"
    part = f", {format_share(share)} of the step's difference" if share is not None else ""
    lines = wrapped(f"{key.op} in {key.phase.value} of {key.module or 'no module'}", width, Role.STRONG, indent=2)
    lines.append(line(Span(f"{format_signed_seconds(delta.delta_s)}{interval}", role_of_delta(node)), f"{part}"))
    times = f"baseline {format_seconds(delta.baseline_s)} → candidate {format_seconds(delta.candidate_s)}"
    lines += wrapped(f"{times}, {called_text(delta)}, q = {delta.q:.2g}", width, indent=2)
    lines.append(line(Span(change_text(delta), role_of_delta(node))))
    for name, text in (
        ("as", delta.detail),
        ("shapes", key.shapes),
        ("dtypes", key.dtypes),
        ("layouts", key.layouts),
        ("source", delta.source or ""),
    ):
        lines += wrapped(f"{name:<8}{text}", width, Role.MUTED, indent=8) if text else []
    return lines


def _blame_lines(delta: OpDelta, attribution: Attribution | None, width: int) -> list[Line]:
    culprits = attribution.culprits if attribution is not None else ()
    return [content for culprit in culprits if delta.key in culprit.ops for content in _blame_of(culprit, width)]


def _blame_of(culprit: Culprit, width: int) -> list[Line]:
    if culprit.is_within_noise:
        return wrapped(f"changed, cost within the noise: {describe(culprit.fact)}", width, Role.MUTED, indent=2)
    return wrapped(f"culprit: {describe(culprit.fact)}", width, Role.SLOWER, indent=2)


def balance_lines(attribution: Attribution, width: int) -> list[Line]:
    """What the step's difference is made of, in words."""
    return [
        *wrapped(step_text(attribution), width, Role.STRONG, indent=2),
        *wrapped(balance_line(attribution), width, Role.MUTED, indent=2),
    ]
