"""Ops: which ops made the step of the selected case slower, as a tree or a list, with a waterfall of the step."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from perfguard.records.steps.ops import Attribution, OpCountChange, OpDelta
from perfguard.report.culprits import beyond_culprits
from perfguard.report.op_tree import (
    OpLevel,
    OpNode,
    first_culprit,
    flat_nodes,
    frames_of,
    op_count_nodes,
    path_to,
    tree_of,
)
from perfguard.tui.drawing.spans import EMPTY, UNICODE, Line, Role, Span, line, wrapped
from perfguard.tui.drawing.steps import plot_flame, plot_waterfall
from perfguard.tui.keymap import KeyScope
from perfguard.tui.screens.base import TURNED_TEXTS, ViewScreen
from perfguard.tui.tables.columns import Filter
from perfguard.tui.tables.ops import PAGE, OpsView, Order, balance_lines, op_lines, ops_table, rows_of, verdict_line
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Lines, Pane, bindings_in
from perfguard.units import format_number
from perfguard.watch.view.run_view import CaseView

_OP, _WATERFALL, _FLAME = "selected op", "waterfall", "flame graph"
_PICTURES = (_WATERFALL, _FLAME)
_ORDERS = tuple(Order)
_LEAST_BARS = 5  # Lines of a waterfall; words that do not fit below are scrolled to


class OpsScreen(ViewScreen):
    """The differences of one case's ops."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_in(KeyScope.OPS)
    mode = "ops"

    def __init__(self) -> None:
        table = RowTable(ops_table(UNICODE, 0.0, 0.0), id="ops", classes="pane")
        super().__init__(table, Pane(id="op", classes="pane"))
        self.picture = Pane(id="picture", classes="pane")
        self.title_line = Lines(id="ops-title")
        self.how = OpsView()
        self._is_tree = True
        self._front = _OP  # Of the op and the pictures
        self.detail.entitle(_OP)
        self._shown: tuple[str | None, Attribution | None, tuple[OpCountChange, ...] | None] | None = None
        self._deltas: tuple[OpDelta, ...] = ()
        self._tree: tuple[OpNode, ...] = ()
        self._total = 0

    def is_flagged(self, row: Any) -> bool:
        """Rows of the op counts, and ops that are blamed."""
        attribution = self._attribution
        culprits = attribution.culprits if attribution is not None else ()
        delta = row.node.delta
        is_blamed = delta is not None and any(delta.key in culprit.ops for culprit in culprits)
        return row.node.op_counts is not None or (is_blamed and row.node.level is not OpLevel.IMPLEMENTATION)

    def next_flag(self, step: int) -> bool:
        """The next row that needs a look; where this case has none, the next case whose ops were compared."""
        if super().next_flag(step):
            return True
        other = self._case_with_ops()
        if other is None:
            return False
        self.session.select(other.case_id, is_chosen=True)
        self.perfguard.paint()
        return True

    def _case_with_ops(self) -> CaseView | None:
        return next((case for case in self.session.cases if case.attribution is not None), None)

    @property
    def _attribution(self) -> Attribution | None:
        case = self.session.case
        return case.attribution if case is not None else None

    def compose_body(self) -> Iterable[Widget]:
        """What it comes to in a sentence, the rows, a picture or the row under the cursor in full."""
        yield self.title_line
        below = Container(self.detail, self.picture, classes="plots holder")
        yield Container(self.table, below, classes="body stacked")

    def update_body(self, *, resort: bool) -> None:
        """Show the selected case's ops; another case, or new facts about it, are read in a thread."""
        del resort
        case = self.session.case
        wanted = (case.case_id, case.attribution, case.op_counts) if case is not None else (None,) * 3
        if wanted == self._shown:
            return
        self._shown = wanted
        self._deltas, self._tree = (), ()
        if case is not None and case.attribution is not None:
            read = partial(self.session.watch.deltas, case.case_id)
            self.in_thread(read, partial(self._show_ops, case.case_id), "ops")
        self._arrange()

    def _show_ops(self, case_id: str, deltas: tuple[OpDelta, ...]) -> None:
        """The cursor stands on the first op that is blamed."""
        if self._shown is None or self._shown[0] != case_id:
            return
        self._deltas, self._tree = deltas, tree_of(deltas)
        culprit = first_culprit(self._attribution)
        path = path_to(self._tree, culprit) if culprit is not None else None
        self._rearrange(opened=self.how.opened.union((path or ())[:-1]))
        if culprit is not None:
            self.table.go_to(culprit)

    def _arrange(self) -> None:
        """The rows in the present order, and the pane below."""
        case, attribution = self.session.case, self._attribution
        counts = op_count_nodes(beyond_culprits(case.op_counts or (), attribution)) if case is not None else ()
        nodes = (*counts, *(self._tree if self._is_tree else flat_nodes(self._deltas)))
        step_delta_s = attribution.balance.delta_s if attribution is not None else 0.0
        rows, self._total = rows_of(nodes, self.how, step_delta_s)
        deltas_s = [delta.delta_s for delta in self._deltas] + [node.delta_s for node in nodes]
        self.table.show(rows, spec=ops_table(self.glyphs, min(deltas_s, default=0.0), max(deltas_s, default=0.0)))
        self.table.entitle(f"ops of {case.title}, {self._how_it_is_shown()}" if case is not None else "ops")
        self.title_line.show(self._title)
        self.update_details()

    def _title(self, width: int, height: int) -> list[Line]:
        case, attribution = self.session.case, self._attribution
        if case is None:
            return [line(Span("no case is selected", Role.MUTED))]
        if attribution is None:
            lines = wrapped(_why_empty(self._case_with_ops()), width, Role.MUTED)
        else:
            lines = [verdict_line(attribution, width)]
        if not self.has_class("-tall"):  # else the table's title says it
            lines.insert(0, line(Span(case.title, Role.STRONG), Span(f"  {self._how_it_is_shown()}", Role.MUTED)))
        return lines[: max(1, height)]

    def _how_it_is_shown(self) -> str:
        how = self.how
        kind = "tree" if self._is_tree else "list"
        order = f"by {how.order.value}{', turned round' if how.is_reversed else ''}"
        is_cut = how.most is not None and self._total > how.most
        limit = f", the first {PAGE} of {format_number(self._total)} rows (A: all)" if is_cut else ""
        return f"{kind} {order}{limit}"

    @property
    def _picture(self) -> str:
        """The picture that is drawn, also where it is hidden."""
        return _WATERFALL if self._front == _OP else self._front

    def update_details(self) -> None:
        """The op under the cursor and a picture; where there is no room for both, the one in front."""
        self.detail.set_class(self._front != _OP, "-behind")
        self.picture.set_class(self._front == _OP, "-behind")
        self.picture.entitle(self._picture)
        super().update_details()
        self.picture.show(self._draw_picture)

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """The row under the cursor in full."""
        del height
        row = self.table.cursor_row
        return op_lines(row, self._attribution, width) if row is not None else []

    def _draw_picture(self, width: int, height: int) -> list[Line]:
        attribution, case = self._attribution, self.session.case
        if self._picture == _WATERFALL and attribution is not None:
            words = balance_lines(attribution, width)
            bars = plot_waterfall(attribution, width, max(_LEAST_BARS, height - len(words) - 1), self.glyphs)
            return [*bars, EMPTY, *words]
        if self._picture == _FLAME and self._tree and case is not None:
            return plot_flame(frames_of(self._tree, case.case_id), width, height)
        return []

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """Open or close a node."""
        self._turn(event.key, is_open=event.key not in self.how.opened)

    def _turn(self, key: str, *, is_open: bool) -> None:
        self._rearrange(opened=self.how.opened | {key} if is_open else self.how.opened - {key})

    def _rearrange(self, **changes: Any) -> None:
        self.how = replace(self.how, **changes)
        self._arrange()

    def apply_filter(self, wanted: Filter | None) -> None:
        """A filter opens what is above the rows that it accepts."""
        self._rearrange(accepts=wanted.accepts if wanted is not None else None)

    def action_sort(self) -> None:
        """Order by the next of total, own, baseline, name, difference."""
        at = _ORDERS.index(self.how.order)
        self._rearrange(order=_ORDERS[(at + 1) % len(_ORDERS)])
        self.perfguard.say(f"sorted by {self.how.order.value}")

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._rearrange(is_reversed=not self.how.is_reversed)
        self.perfguard.say(TURNED_TEXTS[self.how.is_reversed])

    def action_order(self, order: str) -> None:
        """Order by total time, or by the difference of own ops."""
        self._rearrange(order=Order.TOTAL if order == "total" else Order.OWN)

    def action_unfold(self) -> None:
        """Open the node under the cursor."""
        row = self.table.cursor_row
        if row is not None and row.node.children:
            self._turn(row.node.key, is_open=True)

    def action_fold(self) -> None:
        """Close the node under the cursor; where it is closed, go to the one above."""
        row = self.table.cursor_row
        if row is None:
            return
        if row.is_open:
            self._turn(row.node.key, is_open=False)
            return
        path = path_to(self._tree, row.node.key)
        if path is not None and len(path) > 1:
            self.table.go_to(path[-2])

    def action_unfold_all(self) -> None:
        """Open all nodes; where all are open, close them."""
        every = frozenset(_keys_with_children(self._tree))
        self._rearrange(opened=frozenset() if every <= self.how.opened else every)

    def action_toggle_tree(self) -> None:
        """Tree or list."""
        self._is_tree = not self._is_tree
        self._arrange()

    def action_toggle_flame(self) -> None:
        """The next picture."""
        has_room = self.has_class("-tall") and not self.has_class("-narrow")
        turns, now = (_PICTURES, self._picture) if has_room else ((_OP, *_PICTURES), self._front)
        self._front = turns[(turns.index(now) + 1) % len(turns)]
        self.update_details()

    def action_show_all(self) -> None:
        """All rows, or the first page."""
        self._rearrange(most=PAGE if self.how.most is None else None)


def _keys_with_children(nodes: Iterable[OpNode]) -> Iterable[str]:
    for node in nodes:
        if node.children:
            yield node.key
            yield from _keys_with_children(node.children)


def _why_empty(other: CaseView | None) -> str:
    """Why there are no ops, and what to do; `other` is a case that has some."""
    if other is not None:
        return f"the ops of this case were not compared; n shows {other.title}, whose were"
    return (
        "the ops of this case were not compared: that happens to red cases after the last block; "
        "perfguard compare --ops compares all"
    )
