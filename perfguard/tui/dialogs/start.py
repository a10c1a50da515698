"""Starting a run or a baseline update: the command line is shown, can be changed, and is started only on enter."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Input

from perfguard.errors import UsageError
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line, wrapped
from perfguard.tui.widgets.texts import Lines

_STARTABLE = (("run",), ("compare",), ("gate",), ("baseline", "update"))


def checked_words(text: str) -> tuple[str, ...]:
    """The arguments in a command line, with or without `perfguard` in front.

    Raises:
        UsageError: It cannot be taken apart, or is nothing that may be started from here.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the command cannot be read: {error}") from error
    if words[:1] == ["perfguard"]:
        words = words[1:]
    if not any(tuple(words[: len(start)]) == start for start in _STARTABLE):
        raise UsageError("only perfguard run, compare, gate and baseline update can be started from here")
    return tuple(words)


class StartDialog(ModalScreen[tuple[str, ...] | None]):
    """Dismissed with the arguments to start, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "leave it", id="dialog-leave")]

    def __init__(self, words: Sequence[str], *, title: str, is_read_only: bool) -> None:
        super().__init__()
        self._title, self._is_read_only = title, is_read_only
        self._problem = ""
        self.input = Input(shlex.join(["perfguard", *words]), id="command", compact=True, select_on_focus=False)
        self.input.cursor_blink = False
        self.text = Lines(id="start-text")

    def compose(self) -> ComposeResult:
        """What it is about, the command, what can go wrong."""
        yield Container(self.text, self.input, classes="dialog start")

    def on_mount(self) -> None:
        """The command can be changed at once."""
        self.text.show(self._text)
        self.input.focus()

    def _text(self, width: int, _height: int) -> list[Line]:
        if self._is_read_only:
            hint = "read-only: nothing is started from here; copy the command, or leave --read-only out. esc leaves"
        else:
            hint = "enter starts this command as a process of its own, which goes on when you quit; esc leaves it"
        lines = [line(Span(self._title, Role.STRONG)), *wrapped(hint, width, Role.MUTED)]
        lines += wrapped(self._problem, width, Role.BROKEN) if self._problem else [EMPTY]
        return lines

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Start it, or say why not."""
        event.stop()
        try:
            words = checked_words(event.value)
        except UsageError as error:
            self._problem = str(error)
            self.text.show(self._text)
            return
        self.dismiss(None if self._is_read_only else words)
