"""All keys with what they are mapped to, and what the signs mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen

from perfguard.tui.drawing.spans import EMPTY, Line, Role, Span, line, wrapped
from perfguard.tui.keymap import KEYS, Scope, shown_keys
from perfguard.tui.widgets.texts import Pane

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


class HelpDialog(ModalScreen[None]):
    """Keys and signs; scrolls like any pane."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,h", "dismiss", "close", id="dialog-close")
    ]

    def __init__(self, keymap: Mapping[str, str], themes: Sequence[str]) -> None:
        super().__init__()
        self._keymap, self._themes = keymap, themes
        self.pane = Pane(id="help")

    def compose(self) -> ComposeResult:
        """One pane."""
        yield Container(self.pane, classes="dialog high")

    def on_mount(self) -> None:
        """Write it."""
        self.pane.show(lambda width, _: help_lines(self._keymap, self._themes, width))
        self.pane.focus()


def help_lines(keymap: Mapping[str, str], themes: Sequence[str], width: int) -> list[Line]:
    """Keys by where they work, then signs and themes; remapped keys as they are now."""
    lines = [line(Span("perfguard tui", Role.STRONG), "  watches a run and never stops it"), EMPTY]
    for scope in Scope:
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
    body = wrapped(text, max(10, width - _NAME_WIDTH))
    return [
        (Span(f"  {name if index == 0 else '':<{_NAME_WIDTH - 2}}", role), *content)
        for index, content in enumerate(body)
    ]
