"""What all screens share: head and keys, filtering, sorting, and a table with what stands beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from perfguard.tui.drawing.head import FrameFacts, head_lines, screen_at, status_line
from perfguard.tui.drawing.spans import Glyphs, Line, Role, Span, line, width_of, wrapped
from perfguard.tui.keymap import KEYS, KeyScope
from perfguard.tui.session import AppState
from perfguard.tui.tables.columns import Filter, parse_filter
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Lines, Pane, inks_of
from perfguard.watch.view.run_view import RunView

if TYPE_CHECKING:
    from perfguard.tui.app import PerfguardApp

T = TypeVar("T")

SMALLEST_WIDTH, SMALLEST_HEIGHT = 30, 8  # Below this the screen says so instead of showing crumbs
_WIDTHS = [(0, "-crumb-wide"), (SMALLEST_WIDTH, "-narrow"), (100, "-normal"), (150, "-wide")]
_HEIGHTS = [(0, "-crumb-high"), (SMALLEST_HEIGHT, "-flat"), (12, "-low"), (16, "-short"), (30, "-tall")]
TURNED_TEXTS = ("order as usual", "order turned round")
_FIRST = ("help", "quit", "filter", "ops", "open")
"""Keys that stay in the bottom line when there is no room for others."""


class Head(Lines):
    """Screens, run, verdict so far, host."""

    def __init__(self) -> None:
        super().__init__(id="head")
        self._facts: FrameFacts | None = None

    def show_run(self, view: RunView, facts: FrameFacts) -> None:
        """Show this run."""
        self._facts = facts
        self.show(lambda width, height: head_lines(view, facts, width, height))

    async def on_click(self, event: events.Click) -> None:
        """Screens can be chosen with the mouse, too."""
        name = screen_at(event.x, self._facts, self.size.width) if self._facts and event.y == 0 else None
        if name is not None:
            await self.app.run_action(f"show_screen({name.lower()!r})")


class KeyBar(Lines):
    """The most important keys of the screen, with what they are mapped to."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._ends: list[tuple[int, str]] = []

    def on_mount(self) -> None:
        """Follow the focus and the keymap."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.show(self._drawn)

    def _drawn(self, width: int, _height: int) -> Sequence[Line]:
        """As many keys as fit, the most important ones first, those of this screen alone before common ones."""
        bindings = {active.binding.id: active.binding for active in reversed(self.screen.active_bindings.values())}
        here = getattr(self.screen, "mode", None)
        places = [
            place for place, key in enumerate(KEYS) if key.id in bindings and bindings[key.id].show and key.id != here
        ]
        chosen: dict[int, tuple[str, str]] = {}
        room = width - 1
        for place in sorted(places, key=_importance):
            key = KEYS[place]
            shown = self.app.get_key_display(bindings[key.id])
            length = cell_len(f"{shown} {key.label}  ")
            if length <= room:
                chosen[place] = (shown, key.label)
                room -= length
        parts: list[str | Span] = [" "]
        self._ends = []
        for place, (shown, label) in sorted(chosen.items()):
            parts += [Span(shown, Role.ACCENT), Span(f" {label}  ", Role.MUTED)]
            self._ends.append((width_of(line(*parts)), bindings[KEYS[place].id].key))
        return [line(*parts)]

    def on_click(self, event: events.Click) -> None:
        """A click on a key is the key."""
        key = next((key for end, key in self._ends if event.x < end), None)
        if key is not None:
            self.app.simulate_key(key)


def _importance(place: int) -> tuple[int, int]:
    key = KEYS[place]
    is_common = key.scope in (KeyScope.APP, KeyScope.REPLAY)
    return _FIRST.index(key.id) if key.id in _FIRST else len(_FIRST) + is_common, place


class ViewScreen(Screen[None]):
    """One way to look at the run."""

    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERTICAL_BREAKPOINTS = _HEIGHTS
    mode: ClassVar[str] = ""  # Its name for keys and commands
    next_mode: ClassVar[str] = ""  # Where its rows are cases: the screen that looks closer at one

    def __init__(self, table: RowTable[Any], detail: Pane) -> None:
        super().__init__(classes="view")
        self.table = table
        """What filter, order and copying belong to."""
        self.detail = detail
        """Stands beside or below it."""
        self.filter: Filter | None = None
        self._head = Head()
        self._status = Lines(id="status")
        self._too_small = Lines(id="too-small")
        placeholder = "regular expression, or !one for all other rows"
        self._filter_line = Input(placeholder=placeholder, id="filter", compact=True)
        self._filter_line.cursor_blink = False
        self._filter_line.display = False
        self._is_zoomed = False
        self._is_composed = False

    @property
    def perfguard(self) -> PerfguardApp:
        """The application."""
        return cast("PerfguardApp", self.app)

    @property
    def session(self) -> AppState:
        """What all screens share."""
        return self.perfguard.session

    @property
    def glyphs(self) -> Glyphs:
        """What pictures are drawn with."""
        return inks_of(self).glyphs

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        yield self._too_small
        yield self._head
        yield from self.compose_body()
        yield self._status
        yield self._filter_line
        yield KeyBar()

    def compose_body(self) -> Iterable[Widget]:
        """The tables and panes of this screen."""
        raise NotImplementedError

    def is_flagged(self, row: Any) -> bool:
        """Whether the key for the next flag stops at a row."""
        raise NotImplementedError

    def update_body(self, *, resort: bool) -> None:
        """Show the run as it is now; called for the active screen only."""
        raise NotImplementedError

    def update_details(self) -> None:
        """Show what stands beside the table."""
        self.detail.show(self.draw_detail)

    def draw_detail(self, width: int, height: int) -> Sequence[Line]:
        """What the table has no room for, mostly the row under the cursor in full."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Everything is there; show the run."""
        self._too_small.show(self._too_small_lines)
        self._is_composed = True
        self.perfguard.paint()

    def on_screen_resume(self) -> None:
        """The screen comes to the front."""
        self.perfguard.paint()

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """Another row; a case is then selected on all screens."""
        event.stop()
        if self.next_mode and event.key is not None and event.key == self.table.cursor_key:
            self.session.select(event.key, is_chosen=event.is_chosen)
        self.update_details()

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """Look closer at a case; there is nothing behind most other rows."""
        event.stop()
        if self.next_mode:
            self.session.select(event.key, is_chosen=True)
            self.perfguard.action_show_screen(self.next_mode)

    def follow_selection(self) -> None:
        """Put the cursor on the selected case."""
        selected = self.session.selected
        if selected is not None and selected != self.table.cursor_key:
            self.table.go_to(selected)

    def paint(self, facts: FrameFacts, *, resort: bool) -> None:
        """Show the run: frame and body."""
        if self._is_composed:
            self._head.show_run(self.session.view, facts)
            self.show_status(facts)
            self.update_body(resort=resort)

    def in_thread(self, work: Callable[[], T], then: Callable[[T], None], group: str = "") -> None:
        """Do what may take long, then show what it found; of a group only the newest."""

        async def both() -> None:
            then(await asyncio.to_thread(work))

        self.run_worker(both(), exclusive=bool(group), exit_on_error=False, group=group)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A thread that broke is no reason to stop."""
        if event.state is WorkerState.ERROR:
            self.perfguard.say(f"could not be read: {event.worker.error}")

    def show_status(self, facts: FrameFacts) -> None:
        """Say something at once."""
        view = self.session.view
        self._status.show(lambda width, _: [status_line(view, facts, width)])

    def _too_small_lines(self, width: int, _height: int) -> list[Line]:
        size = self.app.size
        text = f"{size.width}x{size.height} is too small; {SMALLEST_WIDTH}x{SMALLEST_HEIGHT} at least. The run goes on."
        return wrapped(text, max(1, width), Role.OPEN)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A line of text that has the focus takes the filter's key as a character."""
        if action == "filter" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Let a filter be typed."""
        self._filter_line.display = True
        self._filter_line.value = self.filter.text if self.filter is not None else ""
        self.set_focus(self._filter_line)  # at once: the next key may be there already

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        event.stop()
        self._set_filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        event.stop()
        self._close_filter()

    def _set_filter(self, text: str) -> None:
        self.filter = parse_filter(text) if text else None
        self.apply_filter(self.filter)
        self.perfguard.say(self.filter.problem if self.filter is not None else "")

    def apply_filter(self, wanted: Filter | None) -> None:
        """Show only what a filter accepts."""
        self.table.set_filter(wanted)

    def _close_filter(self) -> None:
        self._filter_line.display = False
        self.table.focus()

    def action_sort(self) -> None:
        """Order by the next column; say by which one."""
        choices: list[str | None] = [None, *self.table.sortable()]
        at = choices.index(self.table.sort_id) if self.table.sort_id in choices else 0
        chosen = choices[(at + 1) % len(choices)]
        self.table.sort_by(chosen, is_reversed=self.table.is_reversed)
        self.perfguard.say(f"sorted by {chosen}" if chosen else "in the natural order")

    def action_reverse(self) -> None:
        """Turn the order round; say so."""
        self.table.sort_by(self.table.sort_id, is_reversed=not self.table.is_reversed)
        self.perfguard.say(TURNED_TEXTS[self.table.is_reversed])

    def action_next_flag(self, step: int) -> None:
        """The next row that needs a look."""
        if not self.next_flag(step):
            self.perfguard.say("no row needs attention")

    def next_flag(self, step: int) -> bool:
        """Move the cursor to the next row that needs a look."""
        return self.table.go_to_next(self.is_flagged, step)

    def action_zoom(self) -> None:
        """Make the focused pane as large as the screen, or all of them as they were."""
        focused = self.focused or self.table
        self._is_zoomed = not self._is_zoomed
        self.set_class(self._is_zoomed, "-zoomed")
        for pane in self.query(".pane, .holder"):
            pane.set_class(self._is_zoomed and pane in focused.ancestors_with_self, "-kept")

    def go_back(self) -> bool:
        """Leave the zoom or the filter; False where there was nothing to leave."""
        if self._is_zoomed:
            self.action_zoom()
        elif self._filter_line.display or self.filter is not None:
            self._close_filter()
            self._set_filter("")
        else:
            return False
        return True
