"""What all screens share: the frame, filtering, sorting, and the case that is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from perfguard.tui.drawing.glyphs import Glyphs
from perfguard.tui.drawing.spans import Line, Role, wrapped
from perfguard.tui.panes.head import HeadFacts
from perfguard.tui.session import Session
from perfguard.tui.tables.columns import Filter, parse_filter
from perfguard.tui.widgets.frame import FilterLine, Head, KeyBar
from perfguard.tui.widgets.painting import inks_of
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Lines

if TYPE_CHECKING:
    from perfguard.tui.app import PerfguardApp

SMALLEST_WIDTH, SMALLEST_HEIGHT = 30, 8
"""Below this the screen says so instead of showing crumbs."""


class TooSmall(Lines):
    """Said in place of everything else where the terminal is too small."""


class ViewScreen(Screen[None]):
    """One way to look at the run."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - textual declares it, as no class variable
        (0, "-crumb-wide"),
        (SMALLEST_WIDTH, "-narrow"),
        (100, "-normal"),
        (150, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-crumb-high"),
        (SMALLEST_HEIGHT, "-flat"),
        (12, "-low"),
        (16, "-short"),
        (30, "-tall"),
    ]
    mode: ClassVar[str] = ""
    """Its name for keys and commands."""

    def __init__(self) -> None:
        super().__init__(classes="view")
        self.head = Head()
        self.status = Lines(id="status")
        self.filter_line = FilterLine()
        self.filter: Filter | None = None
        self._is_zoomed = False
        self._is_composed = False

    @property
    def perfguard(self) -> PerfguardApp:
        """The application."""
        return cast("PerfguardApp", self.app)

    @property
    def session(self) -> Session:
        """What all screens share."""
        return self.perfguard.session

    @property
    def glyphs(self) -> Glyphs:
        """What pictures are drawn with."""
        return inks_of(self).glyphs

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        yield TooSmall(id="too-small")
        yield self.head
        yield from self.compose_body()
        yield self.status
        yield self.filter_line
        yield KeyBar()

    def compose_body(self) -> Iterable[Widget]:
        """The tables and panes of this screen."""
        raise NotImplementedError

    @property
    def table(self) -> RowTable[Any]:
        """The table that filter, order and copying belong to."""
        raise NotImplementedError

    def is_flagged(self, row: Any) -> bool:
        """Whether the key for the next flag stops at a row."""
        raise NotImplementedError

    def update_body(self, *, resort: bool) -> None:
        """Show the run as it is now; called for the active screen only."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Everything is there; show the run."""
        self.query_one(TooSmall).show(self._too_small)
        self._is_composed = True
        self.perfguard.paint()

    def on_screen_resume(self) -> None:
        """The screen comes to the front."""
        self.perfguard.paint()

    def paint(self, facts: HeadFacts, status: Callable[[int], Line], *, resort: bool) -> None:
        """Show the run: frame and body."""
        if not self._is_composed:
            return
        self.head.show_run(self.session.view, facts)
        self.show_status(status)
        self.update_body(resort=resort)

    def in_thread(self, work: Callable[[], None], group: str) -> None:
        """Do what may take long; what breaks is said, and the newest of a group wins."""
        self.run_worker(work, thread=True, exclusive=True, exit_on_error=False, group=group)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A thread that broke is no reason to stop."""
        if event.state is WorkerState.ERROR:
            self.perfguard.say(f"could not be read: {event.worker.error}")

    def show_status(self, status: Callable[[int], Line]) -> None:
        """Say something at once."""
        self.status.show(lambda width, _: [status(width)])

    def _too_small(self, width: int, _height: int) -> list[Line]:
        size = self.app.size
        text = f"{size.width}x{size.height} is too small; {SMALLEST_WIDTH}x{SMALLEST_HEIGHT} at least. The run goes on."
        return wrapped(text, max(1, width), Role.OPEN)

    def open_filter(self) -> None:
        """Let a filter be typed."""
        self.filter_line.display = True
        self.filter_line.value = self.filter.text if self.filter is not None else ""
        self.set_focus(self.filter_line)  # at once: the next key may be there already

    def leave_filter(self) -> bool:
        """Close the filter's line and show all rows again; False where neither was there."""
        if not self.filter_line.display and self.filter is None:
            return False
        self._close_filter()
        self.filter_changed("")
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        event.stop()
        self.filter_changed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        event.stop()
        self._close_filter()

    def filter_changed(self, text: str) -> None:
        """Another filter, or none."""
        self.filter = parse_filter(text) if text else None
        self.apply_filter(self.filter)
        self.perfguard.say(self.filter.problem if self.filter is not None else "")

    def apply_filter(self, wanted: Filter | None) -> None:
        """Show only what a filter accepts."""
        self.table.set_filter(wanted)

    def _close_filter(self) -> None:
        self.filter_line.display = False
        self.table.focus()

    def sort_next(self) -> str:
        """Order by the next column; says by which one."""
        choices: list[str | None] = [None, *self.table.sortable()]
        at = choices.index(self.table.sort_id) if self.table.sort_id in choices else 0
        chosen = choices[(at + 1) % len(choices)]
        self.table.sort_by(chosen, is_reversed=self.table.is_reversed)
        return f"sorted by {chosen}" if chosen else "in the natural order"

    def reverse(self) -> str:
        """Turn the order round; says so."""
        self.table.sort_by(self.table.sort_id, is_reversed=not self.table.is_reversed)
        return "order turned round" if self.table.is_reversed else "order as usual"

    def next_flag(self, step: int) -> bool:
        """Move the cursor to the next row that needs a look."""
        return self.table.go_to_next(self.is_flagged, step)

    def zoom(self) -> None:
        """Make the focused pane as large as the screen, or all of them as they were."""
        focused = self.focused or self.table
        self._is_zoomed = not self._is_zoomed
        self.set_class(self._is_zoomed, "-zoomed")
        for pane in self.query(".pane, .holder"):
            pane.set_class(self._is_zoomed and pane in focused.ancestors_with_self, "-kept")

    def go_back(self) -> bool:
        """Leave the zoom or the filter; False where there was nothing to leave."""
        if self._is_zoomed:
            self.zoom()
            return True
        return self.leave_filter()
