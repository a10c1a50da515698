"""The table of ops: which nodes are shown in which order, and their columns; one row in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import chain

from msgspec import Struct

from perfguard.records.steps.ops import Attribution, ChangeClass, Culprit, OpDelta
from perfguard.report.culprits import change_text as counted_text
from perfguard.report.culprits import culprit_lines, step_text
from perfguard.report.messages.catalog import describe
from perfguard.report.op_tree import OpLevel, OpNode, OpRow, calls_text
from perfguard.report.rows import change_word
from perfguard.report.terminal.ops import balance_line
from perfguard.tui.drawing.grid import Grid, position
from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, fitted, line, width_of, wrapped
from perfguard.tui.tables.columns import Column, TableSpec
from perfguard.units import format_seconds, format_seconds_interval, format_share, format_signed_seconds

PAGE = 500  # Rows that are shown before somebody asks for all


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
_KEEP_THEIR_ORDER = (OpLevel.OP_COUNTS, OpLevel.PHASE)


class OpsView(Struct, frozen=True, kw_only=True):
    """How the ops of one case are shown."""

    order: Order = Order.DELTA
    is_reversed: bool = False
    opened: frozenset[str] = frozenset()  # Keys of the nodes whose children are shown
    accepts: Callable[[str], bool] | None = None  # Filter; what it accepts is shown with all that is above it
    most: int | None = PAGE  # Rows to show; None for all


def rows_of(nodes: Sequence[OpNode], view: OpsView, step_delta_s: float) -> tuple[list[OpRow], int]:
    """Rows from top to bottom, and how many there would be without the limit.

    `nodes` are the roots of the tree, or a flat list; shares are parts of `step_delta_s`, the step's difference.
    """
    rows = list(_walk(nodes, view, step_delta_s, 0))
    return rows[: view.most], len(rows)


def _walk(nodes: Sequence[OpNode], view: OpsView, step_delta_s: float, depth: int) -> Iterator[OpRow]:
    for node in _sorted(nodes, view):
        accepts = view.accepts
        is_itself_accepted = accepts is None or accepts(text_of_node(node))
        if accepts is not None and not _is_accepted(node, accepts):
            continue
        # A filter opens a node when something below it is accepted, but not the node itself.
        is_open = bool(node.children) and (node.key in view.opened or not is_itself_accepted)
        share = node.delta_s / step_delta_s if step_delta_s and node.level is not OpLevel.OP_COUNTS else None
        yield OpRow(node=node, depth=depth, is_open=is_open, share=share)
        if is_open:
            yield from _walk(node.children, view, step_delta_s, depth + 1)


def _is_accepted(node: OpNode, accepts: Callable[[str], bool]) -> bool:
    return accepts(text_of_node(node)) or any(_is_accepted(child, accepts) for child in node.children)


def _sorted(nodes: Sequence[OpNode], view: OpsView) -> list[OpNode]:
    """Op counts first, phases as they follow each other, everything else by the order."""
    fixed = [node for node in nodes if node.level in _KEEP_THEIR_ORDER]
    free = [node for node in nodes if node.level not in _KEEP_THEIR_ORDER]
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


@lru_cache(maxsize=4)
def ops_table(glyphs: Glyphs, lowest_s: float, highest_s: float) -> TableSpec[OpRow]:
    """Name, difference with a bar on an axis from `lowest_s` to `highest_s`, both arms, share, kind of change."""

    def timed(name: str, text: Callable[[OpRow], str | None], width: int, rank: int) -> Column[OpRow]:
        """Only for rows with times; None leaves a cell empty."""

        def draw(row: OpRow, _: int) -> Line:
            return line(text(row) or "") if _has_times(row.node) else ()

        return Column(name, name, draw, width, rank=rank, align_right=True)

    bar = partial(_bar, lowest_s=min(0.0, lowest_s), highest_s=max(0.0, highest_s), glyphs=glyphs)
    return TableSpec(
        columns=(
            Column("name", "op", lambda row, width: _name(row, width, glyphs), 34, stretch=2),
            Column("delta", "Δ per step", _delta, 10, align_right=True),
            Column("bar", "", bar, 9, stretch=2, rank=3, is_picture=True),
            timed("share", lambda row: format_share(row.share) if row.share is not None else None, 6, 2),
            timed("baseline", lambda row: format_seconds(row.node.baseline_s), 9, 5),
            timed("candidate", lambda row: format_seconds(row.node.candidate_s), 9, 4),
            timed("calls", lambda row: calls_text(row.node.delta) if row.node.delta is not None else None, 13, 6),
            Column("change", "change", _change, 20, rank=1),
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
    marker = (glyphs.opened if row.is_open else "+") if node.children else " "
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


def _role_of_delta(node: OpNode) -> Role:
    """Slower or faster where the interval says so; for sums, where something below them changed."""
    delta = node.delta
    slower_s, faster_s = (node.delta_s, node.delta_s) if delta is None else (delta.lower_s, delta.upper_s)
    if delta is None and not node.changed:
        return Role.MUTED
    if slower_s > 0:
        return Role.SLOWER
    if faster_s < 0 or delta is None:
        return Role.FASTER
    return Role.PLAIN if node.changed else Role.MUTED


def _has_times(node: OpNode) -> bool:
    return node.op_counts is None and node.level is not OpLevel.IMPLEMENTATION


def _delta(row: OpRow, _: int) -> Line:
    node = row.node
    if node.op_counts is not None:
        return line(f"{node.op_counts.before} → {node.op_counts.after}")
    return line(Span(format_signed_seconds(node.delta_s), _role_of_delta(node))) if _has_times(node) else ()


def _bar(row: OpRow, width: int, lowest_s: float, highest_s: float, glyphs: Glyphs) -> Line:
    """`      │████  `: to the right of zero what takes longer, to its left what takes less."""
    node = row.node
    if not _has_times(node) or width < 3 or lowest_s == highest_s:
        return ()
    grid = Grid(width)
    zero, end = (position(value, lowest_s, highest_s, width) for value in (0.0, node.delta_s))
    cells = range(zero + 1, end + 1) if end > zero else range(end, zero)
    grid.fill(cells, [0], glyphs.block, _role_of_delta(node))
    grid.put(zero, 0, glyphs.vertical, Role.AXIS)
    return grid.line()


def change_text(delta: OpDelta) -> str:
    """What happened to the op. `unchanged` is what gates say of cases, which they prove; of an op nothing is proved."""
    return "no clear change" if delta.change is ChangeClass.UNCHANGED else change_word(delta)


def _change(row: OpRow, _: int) -> Line:
    node = row.node
    if node.op_counts is not None:
        return line(Span(node.op_counts.phase.value, Role.MUTED))
    if node.level is OpLevel.IMPLEMENTATION:
        return ()
    if node.delta is not None:
        return line(Span(change_text(node.delta), _role_of_delta(node)))
    return line(Span(f"{node.changed} changed" if node.changed else "no clear change", Role.MUTED))


def op_lines(row: OpRow, attribution: Attribution | None, width: int) -> list[Line]:
    """What the table has no room for: full shapes, interval, source, implementation, the culprits it belongs to."""
    node = row.node
    if node.op_counts is not None:
        change = node.op_counts
        place = f" of {change.module}" if change.module else ""
        return [
            *wrapped(counted_text(change), width, Role.STRONG, indent=2),
            line(f"{change.rule} in {change.phase.value}{place}: {change.before} → {change.after} in a step"),
            line(Span("counted exactly, not timed", Role.MUTED)),
        ]
    part = f", {format_share(row.share)} of the step's difference" if row.share is not None else ""
    times = f"baseline {format_seconds(node.baseline_s)} → candidate {format_seconds(node.candidate_s)}"
    if node.delta is not None:
        culprits = attribution.culprits if attribution is not None else ()
        blamed = [_blame(culprit, width) for culprit in culprits if node.delta.key in culprit.ops]
        return [
            *_head_lines(node, node.delta, width),
            *chain.from_iterable(blamed),
            *_delta_lines(node, node.delta, part, width, is_blamed=bool(blamed)),
        ]
    return [
        *wrapped(f"{node.level.value} {node.name}", width, Role.STRONG, indent=2),
        line(Span(format_signed_seconds(node.delta_s), _role_of_delta(node)), part),
        line(times),
        line(Span(f"its own ops {format_signed_seconds(node.own_delta_s)}, {node.changed} changed below", Role.MUTED)),
    ]


def _head_lines(node: OpNode, delta: OpDelta, width: int) -> list[Line]:
    key = delta.key
    known = format_seconds_interval(delta.lower_s, delta.upper_s)
    interval = ", interval unknown" if known is None else f" {known}"
    lines = wrapped(f"{key.op} in {key.phase.value} of {key.module or 'no module'}", width, Role.STRONG, indent=2)
    return [*lines, line(Span(f"{format_signed_seconds(delta.delta_s)}{interval}", _role_of_delta(node)))]


def _delta_lines(node: OpNode, delta: OpDelta, part: str, width: int, *, is_blamed: bool) -> list[Line]:
    key = delta.key
    times = f"baseline {format_seconds(delta.baseline_s)} → candidate {format_seconds(delta.candidate_s)}"
    calls = f"{calls_text(delta)} {'call' if delta.baseline_calls == delta.candidate_calls == 1 else 'calls'}"
    lines = wrapped(f"{times}{part}, {calls}, q = {delta.q:.2g}", width, indent=2)
    if not is_blamed:  # else the culprit has said it
        lines.append(line(Span(change_text(delta), _role_of_delta(node))))
    for name, text in (
        ("as", delta.detail),
        ("shapes", key.shapes),
        ("dtypes", key.dtypes),
        ("layouts", key.layouts),
        ("source", delta.source),
    ):
        lines += wrapped(f"{name:<8}{text}", width, Role.MUTED, indent=8) if text else []
    return lines


def _blame(culprit: Culprit, width: int) -> list[Line]:
    if culprit.is_within_noise:
        return wrapped(f"changed, cost within the noise: {describe(culprit.fact)}", width, Role.MUTED, indent=2)
    return wrapped(f"culprit: {describe(culprit.fact)}", width, Role.SLOWER, indent=2)


def verdict_line(attribution: Attribution, width: int) -> Line:
    """The profiled step's difference, and the first culprit."""
    culprits = [Span(f"  {found.headline}", Role.SLOWER) for found in culprit_lines(attribution)[:1]]
    content = line(Span(f"profiled {step_text(attribution)}", Role.STRONG), *culprits)
    return fitted(content, width) if width_of(content) > width else content


def balance_lines(attribution: Attribution, width: int) -> list[Line]:
    """What the step's difference is made of, in words."""
    return wrapped(balance_line(attribution), width, Role.MUTED, indent=2)
