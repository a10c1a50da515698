"""Where to write what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Input

from perfguard.errors import UsageError
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line, wrapped
from perfguard.tui.export import FORMATS
from perfguard.tui.widgets.texts import Lines


def checked_path(text: str) -> Path:
    """A file that may be written.

    Raises:
        UsageError: Its ending is no format, its folder is missing, or it exists already.
    """
    path = Path(text).expanduser()
    if path.suffix not in FORMATS:
        raise UsageError(f"{path.suffix or 'no ending'} is no format; end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    if path.exists():
        raise UsageError(f"{path} exists already; choose another name")
    return path


class ExportDialog(ModalScreen[Path | None]):
    """Dismissed with the file to write, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "leave it", id="dialog-leave")]

    def __init__(self, proposed: str) -> None:
        super().__init__()
        self._problem = ""
        self.input = Input(proposed, id="path", compact=True)
        self.input.cursor_blink = False
        self.text = Lines(id="export-text")

    def compose(self) -> ComposeResult:
        """Formats, the name, what is wrong with it."""
        yield Container(self.text, self.input, classes="dialog start")

    def on_mount(self) -> None:
        """The name can be changed at once."""
        self.text.show(self._text)
        self.input.focus()

    def _text(self, width: int, _height: int) -> list[Line]:
        hint = (
            "enter writes the rows that are shown; .md .csv .json .txt, or .svg for a picture of the screen; esc leaves"
        )
        lines = [line(Span("write to", Role.STRONG)), *wrapped(hint, width, Role.MUTED)]
        return [*lines, *(wrapped(self._problem, width, Role.BROKEN) if self._problem else [EMPTY])]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the name, or say what is wrong with it."""
        event.stop()
        try:
            path = checked_path(event.value.strip())
        except UsageError as error:
            self._problem = str(error)
            self.text.show(self._text)
            return
        self.dismiss(path)
