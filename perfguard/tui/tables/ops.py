"""The table of ops: which nodes are shown in which order, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from perfguard.records.steps.ops import ChangeClass, OpDelta
from perfguard.report.op_tree import OpLevel, OpNode, OpRow, calls_text
from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.grid import Grid, position
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.tui.tables.columns import Column, TableSpec, titled
from perfguard.units import format_seconds, format_share, format_signed_seconds

PAGE = 500
"""Rows that are shown before somebody asks for all."""


class Order(str, Enum):
    """What rows are sorted by: largest first, names from A to Z; phases keep the order of a step."""

    DELTA = "difference"
    TOTAL = "total time"
    OWN = "own difference"
    BASELINE = "baseline"
    NAME = "name"


_ORDERS: dict[Order, Callable[[OpNode], float | str]] = {
    Order.DELTA: lambda node: -abs(node.delta_s),
    Order.TOTAL: lambda node: -node.candidate_s,
    Order.OWN: lambda node: -abs(node.own_delta_s),
    Order.BASELINE: lambda node: -node.baseline_s,
    Order.NAME: lambda node: node.name,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsView:
    """How the ops of one case are shown."""

    order: Order = Order.DELTA
    """What rows are sorted by."""
    is_reversed: bool = False
    """Whether the order is turned round."""
    opened: frozenset[str] = field(default_factory=frozenset)
    """Keys of the nodes whose children are shown."""
    accepts: Callable[[str], bool] | None = None
    """Filter; what it accepts is shown with all that is above it."""
    most: int | None = PAGE
    """Rows to show; None for all."""


def rows_of(nodes: Sequence[OpNode], view: OpsView, step_delta_s: float) -> tuple[list[OpRow], int]:
    """Rows from top to bottom, and how many there would be without the limit.

    Args:
        nodes: Roots of the tree, or the nodes of a flat list; rows of the op counts first.
        view: What is open, and the order.
        step_delta_s: Difference of the step, which shares are parts of.
    """
    rows: list[OpRow] = []
    total = 0
    for row in _walk(_sorted(nodes, view), view, step_delta_s, 0):
        total += 1
        if view.most is None or total <= view.most:
            rows.append(row)
    return rows, total


def _walk(nodes: Sequence[OpNode], view: OpsView, step_delta_s: float, depth: int) -> Iterator[OpRow]:
    for node in nodes:
        if view.accepts is not None and not _is_accepted(node, view.accepts):
            continue
        is_open = bool(node.children) and (node.key in view.opened or _holds_match(node, view))
        share = node.delta_s / step_delta_s if step_delta_s and node.level is not OpLevel.OP_COUNTS else None
        yield OpRow(node=node, depth=depth, is_open=is_open, share=share)
        if is_open:
            yield from _walk(_sorted(node.children, view), view, step_delta_s, depth + 1)


def _is_accepted(node: OpNode, accepts: Callable[[str], bool]) -> bool:
    return accepts(text_of_node(node)) or any(_is_accepted(child, accepts) for child in node.children)


def _holds_match(node: OpNode, view: OpsView) -> bool:
    """Whether a filter opens a node: something below it is accepted, but it is not itself."""
    accepts = view.accepts
    if accepts is None or accepts(text_of_node(node)):
        return False
    return any(_is_accepted(child, accepts) for child in node.children)


def _sorted(nodes: Sequence[OpNode], view: OpsView) -> list[OpNode]:
    """Op counts first, phases as they follow each other, everything else by the order."""
    fixed = [node for node in nodes if node.level in (OpLevel.OP_COUNTS, OpLevel.PHASE)]
    free = [node for node in nodes if node.level not in (OpLevel.OP_COUNTS, OpLevel.PHASE)]
    return [*fixed, *sorted(free, key=_ORDERS[view.order], reverse=view.is_reversed)]


def text_of_node(node: OpNode) -> str:
    """What a filter looks at."""
    if node.op_counts is not None:
        return f"op counts {node.op_counts.rule} {node.op_counts.phase.value} {node.op_counts.module} {node.name}"
    delta = node.delta
    if delta is None:
        return f"{node.level.value} {node.name}"
    key = delta.key
    return (
        f"{key.op} {key.phase.value} {key.module} {key.shapes} {key.dtypes} {key.layouts} {change_text(delta)} "
        f"{delta.detail} {delta.source or ''}"
    )


def ops_table(glyphs: Glyphs, largest_s: float) -> TableSpec[OpRow]:
    """Name, difference with a bar, both arms, share, kind of change.

    Args:
        glyphs: What to draw with.
        largest_s: Difference that fills half of a bar.
    """
    return TableSpec(
        columns=(
            Column(
                id="name", head=titled("op"), draw=lambda row, width: _name(row, width, glyphs), width=34, stretch=4
            ),
            Column(id="delta", head=titled("Δ a step"), draw=_delta, width=10, align_right=True),
            Column(
                id="bar",
                head=titled(""),
                draw=lambda row, width: _bar(row, width, largest_s, glyphs),
                width=9,
                stretch=1,
                rank=3,
                is_picture=True,
            ),
            Column(id="share", head=titled("share"), draw=_share, width=6, rank=2, align_right=True),
            Column(id="baseline", head=titled("baseline"), draw=_baseline, width=9, rank=5, align_right=True),
            Column(id="candidate", head=titled("candidate"), draw=_candidate, width=9, rank=4, align_right=True),
            Column(id="calls", head=titled("calls"), draw=_calls, width=13, rank=6, align_right=True),
            Column(id="change", head=titled("change"), draw=_change, width=20, rank=1),
        ),
        key_of=lambda row: row.node.key,
        text_of=lambda row: text_of_node(row.node),
        empty="no op to show",
        whole=_op_count_line,
    )


def _name(row: OpRow, width: int, glyphs: Glyphs) -> Line:
    node = row.node
    if node.op_counts is not None:
        return _op_count_line(row) or ()
    marker = (glyphs.opened if row.is_open else glyphs.closed) if node.children else " "
    indent = "  " * min(row.depth, max(0, width // 4))
    role = Role.STRONG if node.level in (OpLevel.PHASE, OpLevel.MODULE) else Role.PLAIN
    prefix = "as " if node.level is OpLevel.IMPLEMENTATION else ""
    return line(f"{indent}{marker} ", Span(prefix + node.name, role))


def _op_count_line(row: OpRow) -> Line | None:
    """What changed by op counts; None for rows with times."""
    change = row.node.op_counts
    if change is None:
        return None
    return line(
        Span("! ", Role.SLOWER),
        Span(f"{change.rule}: ", Role.STRONG),
        row.node.name,
        Span(f"  {change.before} → {change.after} in {change.phase.value}", Role.MUTED),
    )


def role_of_delta(node: OpNode) -> Role:
    """Slower or faster where the interval says so; for sums, where something below them changed."""
    delta = node.delta
    if delta is not None:
        if delta.lower_s > 0:
            return Role.SLOWER
        if delta.upper_s < 0:
            return Role.FASTER
        return Role.MUTED if not node.changed else Role.PLAIN
    if not node.changed:
        return Role.MUTED
    return Role.SLOWER if node.delta_s > 0 else Role.FASTER


def _has_times(node: OpNode) -> bool:
    return node.op_counts is None and node.level is not OpLevel.IMPLEMENTATION


def _delta(row: OpRow, _: int) -> Line:
    node = row.node
    if node.op_counts is not None:
        return line(f"{node.op_counts.before} → {node.op_counts.after}")
    return line(Span(format_signed_seconds(node.delta_s), role_of_delta(node))) if _has_times(node) else ()


def _bar(row: OpRow, width: int, largest_s: float, glyphs: Glyphs) -> Line:
    node = row.node
    if not _has_times(node) or width < 3 or largest_s <= 0:
        return ()
    grid = Grid(width)
    middle = width // 2
    reach = position(abs(node.delta_s), 0.0, largest_s, middle + 1)
    cells = range(middle + 1, middle + 1 + reach) if node.delta_s > 0 else range(middle - reach, middle)
    for cell in cells:
        grid.put(cell, 0, glyphs.block, role_of_delta(node))
    grid.put(middle, 0, glyphs.vertical, Role.AXIS)
    return grid.line()


def _share(row: OpRow, _: int) -> Line:
    return line(format_share(row.share)) if _has_times(row.node) and row.share is not None else ()


def _baseline(row: OpRow, _: int) -> Line:
    return line(format_seconds(row.node.baseline_s)) if _has_times(row.node) else ()


def _candidate(row: OpRow, _: int) -> Line:
    return line(format_seconds(row.node.candidate_s)) if _has_times(row.node) else ()


def _calls(row: OpRow, _: int) -> Line:
    delta = row.node.delta
    return line(calls_text(delta)) if delta is not None and _has_times(row.node) else ()


def called_text(delta: OpDelta) -> str:
    """`1 → 1,240 calls`, `1 call`."""
    return f"{calls_text(delta)} {'call' if delta.baseline_calls == delta.candidate_calls == 1 else 'calls'}"


def change_text(delta: OpDelta) -> str:
    """What happened to the op. `unchanged` is what gates say of cases, which they prove; of an op nothing is proved."""
    return "no clear change" if delta.change is ChangeClass.UNCHANGED else delta.change.value


def _change(row: OpRow, _: int) -> Line:
    node = row.node
    if node.op_counts is not None:
        return line(Span(node.op_counts.phase.value, Role.MUTED))
    if node.level is OpLevel.IMPLEMENTATION:
        return ()
    if node.delta is not None:
        return line(Span(change_text(node.delta), role_of_delta(node)))
    return line(Span(f"{node.changed} changed" if node.changed else "no clear change", Role.MUTED))
