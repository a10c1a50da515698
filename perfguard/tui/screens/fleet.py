"""Fleet: the hosts that measure for a team, and below them the newest submissions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from textual.containers import Container
from textual.widget import Widget

from perfguard.errors import PerfguardError
from perfguard.records.fleet import Fitness, FleetNow, Host
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.fleet import counted_outcomes
from perfguard.tui.drawing.spans import Line, Role, Span, line, shortened, wrapped
from perfguard.tui.screens.base import ViewScreen
from perfguard.tui.tables.columns import Column, TableSpec
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Pane
from perfguard.units import format_ago, printable

_READ_AGAIN_S = 10.0
_ROLES = {Fitness.FIT: Role.SAME, Fitness.UNFIT: Role.SLOWER, Fitness.DRAINED: Role.MUTED}


@lru_cache(maxsize=1)
def fleet_table() -> TableSpec[Host]:
    """Host, fitness, what it measures, when it was seen, machine."""
    return TableSpec(
        columns=(
            Column(
                "host",
                "host",
                lambda row, width: line(shortened(printable(row.name), width)),
                14,
                stretch=2,
                sort=lambda row: row.name,
            ),
            Column("state", "state", lambda row, _: line(Span(row.fitness.value, _ROLES[row.fitness])), 8),
            Column("measures", "measures", lambda row, _: line(_measures(row)), 12),
            Column(
                "seen", "seen", lambda row, _: line(format_ago(row.seen_at)), 12, rank=1, sort=lambda row: -row.seen_at
            ),
            Column(
                "machine",
                "machine",
                lambda row, width: line(Span(shortened(row.machine_id, width), Role.MUTED)),
                16,
                stretch=2,
                rank=2,
            ),
        ),
        key_of=lambda row: row.name,
        text_of=lambda row: f"{row.name} {row.fitness.value} {row.machine_id} {' '.join(row.classes)}",
        empty="no host is registered; perfguard fleet worker registers the one that it runs on",
    )


def _measures(row: Host) -> str:
    return f"shard {row.shard_id}" if row.shard_id is not None else "-"


class FleetScreen(ViewScreen):
    """Hosts above; what the selected one is, and the submissions, below."""

    mode = "fleet"

    def __init__(self) -> None:
        super().__init__(
            RowTable(fleet_table(), id="hosts", classes="pane"), Pane(id="submissions", classes="pane plot")
        )
        self.table.entitle("hosts")
        self.detail.entitle("submissions")
        self._now = FleetNow()
        self._state = "reading the fleet"
        self._read_at = -_READ_AGAIN_S

    def is_flagged(self, row: Any) -> bool:
        """Hosts that get no work."""
        return bool(row.fitness is not Fitness.FIT)

    def compose_body(self) -> Iterable[Widget]:
        """Hosts and submissions."""
        yield Container(self.table, self.detail, classes="body stacked")

    def _read(self) -> tuple[FleetNow, str]:
        read = self.session.options.read_fleet
        if read is None:
            return FleetNow(), "no fleet can be read from here"
        try:
            return read(), ""
        except PerfguardError as error:
            return FleetNow(), f"the fleet cannot be read: {error}"

    def _show(self, found: tuple[FleetNow, str]) -> None:
        self._now, self._state = found
        self.update_body(resort=True)

    def update_body(self, *, resort: bool) -> None:
        """Show the hosts; read again, in a thread, every ten seconds."""
        if time.monotonic() - self._read_at >= _READ_AGAIN_S:
            self._read_at = time.monotonic()
            self.in_thread(self._read, self._show, "fleet")
        self.table.show(self._now.hosts, spec=fleet_table(), resort=resort)
        self.update_details()

    def draw_detail(self, width: int, height: int) -> list[Line]:
        """Why the selected host is not fit, then a line for each submission."""
        if self._state:
            return wrapped(self._state, width, Role.MUTED)
        row = self.table.cursor_row
        lines: list[Line] = []
        if row is not None and row.reason is not None:
            lines += wrapped(f"{row.name}: {describe(row.reason)}", width, Role.OPEN)
        for each in self._now.status.submissions:
            shards = self._now.status.shards_of(each.id)
            text = f"{each.id:>5}  {each.work.candidate[:12]}  {each.work.suite}  {counted_outcomes(shards)}"
            lines.append(line(shortened(printable(text), width)))
        if not self._now.status.submissions:
            lines += wrapped("nothing was submitted", width, Role.MUTED)
        return lines[:height]
