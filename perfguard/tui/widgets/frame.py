"""What every screen has around its tables: the head, one line for what to know, the keys, the filter's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.tui.keymap import KEYS, Scope
from perfguard.tui.panes.head import HeadFacts, head_lines, screen_at
from perfguard.tui.widgets.texts import Lines
from perfguard.watch.view.run_view import RunView

_PLACES = {key.id: index for index, key in enumerate(KEYS)}
_FIRST = ("help", "quit", "filter", "ops", "open")
"""Keys that stay in the bottom line when there is no room for others."""


class Head(Lines):
    """Screens, run, verdict so far, host."""

    class ScreenChosen(Message):
        """A screen's number was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.screen_name = name

    def __init__(self) -> None:
        super().__init__(id="head")
        self._facts: HeadFacts | None = None

    def show_run(self, view: RunView, facts: HeadFacts) -> None:
        """Show this run."""
        self._facts = facts
        self.show(lambda width, height: head_lines(view, facts, width, height))

    def on_click(self, event: events.Click) -> None:
        """Screens can be chosen with the mouse, too."""
        if self._facts is not None and event.y == 0:
            name = screen_at(event.x, self._facts, self.size.width)
            if name is not None:
                self.post_message(self.ScreenChosen(name.lower()))


class _Shown(NamedTuple):
    key: str
    text: str
    rank: tuple[int, int]


class KeyBar(Lines):
    """The most important keys of the screen, with what they are mapped to."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._shown: list[_Shown] = []
        self._ends: list[tuple[int, str]] = []

    def on_mount(self) -> None:
        """Follow the focus and the keymap."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if not self.is_attached or screen is not self.screen:
            return
        shown: dict[str, _Shown] = {}
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.id in _PLACES and binding.id not in shown and binding.show:
                shown[binding.id] = self._described(binding)
        self._shown = list(shown.values())
        self.show(self._drawn)

    def _described(self, binding: Binding) -> _Shown:
        """A key with its word; keys of this screen alone come before those of all screens."""
        place = _PLACES[binding.id or ""]
        key = KEYS[place]
        is_common = key.scope in (Scope.APP, Scope.REPLAY)
        rank = _FIRST.index(key.id) if key.id in _FIRST else len(_FIRST) + is_common
        return _Shown(binding.key, f"{self.app.get_key_display(binding)} {key.label}", (rank, place))

    def _drawn(self, width: int, _height: int) -> Sequence[Line]:
        """As many keys as fit, the most important ones first; in the order of the keymap."""
        chosen: list[_Shown] = []
        used = 1
        for shown in sorted(self._shown, key=lambda known: known.rank):
            length = cell_len(shown.text) + 2
            if used + length <= width:
                chosen.append(shown)
                used += length
        chosen.sort(key=lambda known: known.rank[1])
        parts: list[str | Span] = [" "]
        self._ends = []
        at = 1
        for shown in chosen:
            key, _, label = shown.text.partition(" ")
            parts += [Span(key, Role.ACCENT), Span(f" {label}  ", Role.MUTED)]
            at += cell_len(shown.text) + 2
            self._ends.append((at, shown.key))
        return [line(*parts)]

    def on_click(self, event: events.Click) -> None:
        """A click on a key is the key."""
        for end, key in self._ends:
            if event.x < end:
                self.app.simulate_key(key)
                return


class FilterLine(Input):
    """Where a filter is typed; hidden until it is asked for."""

    def __init__(self) -> None:
        super().__init__(placeholder="regular expression, or !one for all other rows", id="filter", compact=True)
        self.cursor_blink = False
        self.display = False
