"""Something that must be read: a sentence, whole, until it is closed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen

from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line, wrapped
from perfguard.tui.widgets.texts import Lines


class NoticeDialog(ModalScreen[None]):
    """Stays until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "close", id="dialog-close")]

    def __init__(self, title: str, sentence: str) -> None:
        super().__init__()
        self._title, self._sentence = title, sentence
        self.text = Lines(id="notice")

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Container(self.text, classes="dialog notice")

    def on_mount(self) -> None:
        """Write it."""
        self.text.show(lambda width, _: self._lines(width))

    def _lines(self, width: int) -> list[Line]:
        return [
            line(Span(self._title, Role.STRONG)),
            EMPTY,
            *wrapped(self._sentence, width, Role.BROKEN),
            EMPTY,
            line(Span("esc or enter closes", Role.MUTED)),
        ]
