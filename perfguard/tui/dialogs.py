"""Dialogs over a screen: a line that is asked for, a sentence that must be read, all keys and signs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Input

from perfguard.errors import UsageError
from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, labelled, line, wrapped
from perfguard.tui.keymap import KEYS, KeyScope, shown_keys
from perfguard.tui.tables.columns import FORMATS
from perfguard.tui.tables.runs import runs_table
from perfguard.tui.widgets.row_table import RowTable
from perfguard.tui.widgets.texts import Draw, Lines, Pane
from perfguard.watch.sources.recorded_runs import RecordedRun

T = TypeVar("T")
_SIGNS = (
    ("▲ regressed", Role.SLOWER, "slower than the margin, significantly"),
    ("▼ faster", Role.FASTER, "improved; it passes"),
    ("= unchanged", Role.SAME, "the whole interval lies inside the equivalence margin"),
    ("? inconclusive", Role.OPEN, "too much noise to tell"),
    ("! different", Role.BROKEN, "the arms do not compute the same"),
    ("✗ failed", Role.BROKEN, "it cannot be measured"),
    ("○ open", Role.MUTED, "measured, without an answer yet"),
    ("(…)", Role.MUTED, "advisory: it cannot fail a gate"),
)
_REMAPPING = (
    "tab moves between panes. Keys are remapped by the ids in brackets: [tool.perfguard.keys] in pyproject.toml, or "
    "[keys] in perfguard.toml."
)
_NAME_WIDTH = 20
_STARTABLE = (("run",), ("compare",), ("gate",), ("baseline", "update"))


class InputDialog(ModalScreen[T | None]):
    """Dismissed with what the line says, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "leave it", id="dialog-leave")]

    def __init__(self, title: str, hint: str, proposed: str, check: Callable[[str], T], *, is_selected: bool) -> None:
        super().__init__()
        self._title, self._hint, self._check = title, hint, check
        self._problem = ""
        self.input = Input(proposed, compact=True, select_on_focus=is_selected)
        self.input.cursor_blink = False
        self.text = Lines()

    def compose(self) -> ComposeResult:
        """What it is about, what can go wrong, the line."""
        yield Container(self.text, self.input, classes="dialog start")

    def on_mount(self) -> None:
        """The line can be changed at once."""
        self.text.show(self._text)
        self.input.focus()

    def _text(self, width: int, _height: int) -> list[Line]:
        lines = [line(Span(self._title, Role.STRONG)), *wrapped(self._hint, width, Role.MUTED)]
        return [*lines, *(wrapped(self._problem, width, Role.BROKEN) if self._problem else [EMPTY])]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the line, or say what is wrong with it."""
        event.stop()
        try:
            found = self._check(event.value)
        except UsageError as error:
            self._problem = str(error)
            self.text.show(self._text)
            return
        self.dismiss(found)


def export_dialog(proposed: str) -> InputDialog[Path]:
    """Asks for the file to write."""
    hint = "enter writes the rows that are shown; .md .csv .json .txt, or .svg for a picture of the screen; esc leaves"
    return InputDialog("write to", hint, proposed, lambda text: checked_path(text.strip()), is_selected=True)


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


def start_dialog(words: Sequence[str], *, title: str, is_read_only: bool) -> InputDialog[tuple[str, ...] | None]:
    """Asks for the arguments to start; read-only it only shows them."""
    hint = "enter starts this command as a process of its own, which goes on when you quit; esc leaves it"
    if is_read_only:
        hint = "read-only: nothing is started from here; copy the command, or leave --read-only out. esc leaves"

    def check(text: str) -> tuple[str, ...] | None:
        found = checked_words(text)
        return None if is_read_only else found

    return InputDialog(title, hint, shlex.join(["perfguard", *words]), check, is_selected=False)


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


class _TextDialog(ModalScreen[None]):
    """Stays until a key closes it."""

    def __init__(self, pane: Lines | Pane, draw: Draw, classes: str) -> None:
        super().__init__()
        self.pane = pane
        self._draw, self._box = draw, Container(pane, classes=f"dialog {classes}")

    def compose(self) -> ComposeResult:
        """One pane."""
        yield self._box

    def on_mount(self) -> None:
        """Write it."""
        self.pane.show(self._draw)
        self.pane.focus()


class NoticeDialog(_TextDialog):
    """A sentence that must be read."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "close", id="dialog-close")]

    def __init__(self, title: str, sentence: str) -> None:
        def draw(width: int, _: int) -> list[Line]:
            head, closes = line(Span(title, Role.STRONG)), line(Span("esc or enter closes", Role.MUTED))
            return [head, EMPTY, *wrapped(sentence, width, Role.BROKEN), EMPTY, closes]

        super().__init__(Lines(id="notice"), draw, "notice")


class RunsDialog(ModalScreen[str | None]):
    """The project's runs; dismissed with the name of the one that was chosen, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "leave it", id="dialog-leave")]

    def __init__(self, runs: Sequence[RecordedRun], shown: str | None) -> None:
        super().__init__()
        self._runs, self._shown = runs, shown
        self.table = RowTable(runs_table())
        self.text = Lines()

    def compose(self) -> ComposeResult:
        """What the keys do, and the runs."""
        yield Container(self.text, self.table, classes="dialog high runs")

    def on_mount(self) -> None:
        """The cursor is on the run that is shown."""
        self.text.show(lambda *_: [line(Span("runs", Role.STRONG), Span("  enter opens one, esc leaves", Role.MUTED))])
        self.table.show(self._runs)
        if self._shown is not None:
            self.table.go_to(self._shown)
        self.table.focus()

    def on_row_table_opened(self, event: RowTable.Opened) -> None:
        """Leave with the run under the cursor."""
        event.stop()
        self.dismiss(event.key)


class HelpDialog(_TextDialog):
    """Keys and signs; scrolls like any pane."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,h", "dismiss", "close", id="dialog-close")
    ]

    def __init__(self, keymap: Mapping[str, str], themes: Sequence[str]) -> None:
        super().__init__(Pane(id="help"), lambda width, _: _help_lines(keymap, themes, width), "high")


def _help_lines(keymap: Mapping[str, str], themes: Sequence[str], width: int) -> list[Line]:
    """Keys by where they work, then signs and themes; remapped keys as they are now."""
    lines = [line(Span("perfguard tui", Role.STRONG), "  watches a run and never stops it"), EMPTY]
    for scope in KeyScope:
        lines.append(line(Span(scope.value, Role.TITLE)))
        for key in KEYS:
            if key.scope is scope:
                lines += _entry(shown_keys(keymap.get(key.id, key.keys)), Role.ACCENT, f"{key.text} ({key.id})", width)
        lines.append(EMPTY)
    lines.append(line(Span("signs", Role.TITLE)))
    for sign, role, text in _SIGNS:
        lines += _entry(sign, role, text, width)
    lines += [EMPTY, *wrapped(f"themes (--theme, or the palette): {', '.join(themes)}", width, Role.MUTED, indent=2)]
    return [*lines, EMPTY, *wrapped(_REMAPPING, width, Role.MUTED, indent=2)]


def _entry(name: str, role: Role, text: str, width: int) -> list[Line]:
    return labelled(f"  {name}", text, max(width, _NAME_WIDTH + 10), _NAME_WIDTH, role)
