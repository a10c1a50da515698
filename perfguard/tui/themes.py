"""Themes, and the colours of roles in each: blue is faster, orange slower, so that colour-blind readers can tell them.

Source: Okabe and Ito (2008), Color Universal Design, the palette of eight colours.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

from perfguard.tui.drawing.spans import Role

DEFAULT_THEME = "perfguard-dark"
PLAIN_THEME = "perfguard-ansi"
"""For terminals with 16 colours, and where no colour is wanted."""

_DARK: dict[Role, str] = {
    Role.PLAIN: "",
    Role.MUTED: "#8a93a2",
    Role.STRONG: "bold",
    Role.TITLE: "bold #9fb3c8",
    Role.ACCENT: "#cc9ade",
    Role.AXIS: "#5f6b7a",
    Role.SLOWER: "bold #f0a202",
    Role.FASTER: "bold #56b4e9",
    Role.SAME: "#b4bcc8",
    Role.OPEN: "#f0e442",
    Role.BROKEN: "bold #ff7a5c",
    Role.BASELINE: "#9aa5b1",
    Role.CANDIDATE: "#7fd1b9",
    Role.ACTIVE: "bold reverse",
}
_LIGHT: dict[Role, str] = {
    **_DARK,
    Role.MUTED: "#5b6472",
    Role.TITLE: "bold #33475b",
    Role.ACCENT: "#8a4a9e",
    Role.AXIS: "#9aa3ad",
    Role.SLOWER: "bold #a85a00",
    Role.FASTER: "bold #0067a8",
    Role.SAME: "#444c56",
    Role.OPEN: "#7a6a00",
    Role.BROKEN: "bold #b3260e",
    Role.BASELINE: "#5b6472",
    Role.CANDIDATE: "#00755a",
}
_CONTRAST: dict[Role, str] = {
    **_DARK,
    Role.MUTED: "#d0d0d0",
    Role.TITLE: "bold #ffffff",
    Role.ACCENT: "bold #ffb3ff",
    Role.AXIS: "#b0b0b0",
    Role.SLOWER: "bold #ffb000",
    Role.FASTER: "bold #66ccff",
    Role.SAME: "#ffffff",
    Role.OPEN: "bold #ffff66",
    Role.BROKEN: "bold #ff8f73",
    Role.BASELINE: "#d0d0d0",
    Role.CANDIDATE: "#66ffcc",
}
_ANSI: dict[Role, str] = {
    Role.PLAIN: "",
    Role.MUTED: "dim",
    Role.STRONG: "bold",
    Role.TITLE: "bold underline",
    Role.ACCENT: "magenta",
    Role.AXIS: "dim",
    Role.SLOWER: "bold yellow",
    Role.FASTER: "bold cyan",
    Role.SAME: "",
    Role.OPEN: "bold",
    Role.BROKEN: "bold red",
    Role.BASELINE: "",
    Role.CANDIDATE: "green",
    Role.ACTIVE: "bold reverse",
}
_RED_GREEN: dict[Role, str] = {**_DARK, Role.SLOWER: "bold #ff6b6b", Role.FASTER: "bold #5fd38d"}

_STYLES: dict[str, dict[Role, str]] = {
    "perfguard-dark": _DARK,
    "perfguard-light": _LIGHT,
    "perfguard-contrast": _CONTRAST,
    "perfguard-ansi": _ANSI,
    "perfguard-red-green": _RED_GREEN,
}

_CURSOR = "row-cursor"
"""Variable of the stylesheet: background of the row under the cursor."""


def _dark(name: str, *, background: str, surface: str, cursor: str) -> Theme:
    return Theme(
        name=name,
        primary="#56b4e9",
        secondary="#7fd1b9",
        accent="#cc9ade",
        warning="#f0a202",
        error="#ff7a5c",
        success="#7fd1b9",
        foreground="#e6e9ef",
        background=background,
        surface=surface,
        panel=surface,
        dark=True,
        variables={_CURSOR: cursor, "border": "#3b4654", "border-blurred": "#3b4654"},
    )


THEMES: tuple[Theme, ...] = (
    _dark("perfguard-dark", background="#10151c", surface="#18202a", cursor="#26374a"),
    _dark("perfguard-red-green", background="#10151c", surface="#18202a", cursor="#26374a"),
    _dark("perfguard-contrast", background="#000000", surface="#000000", cursor="#003a5c"),
    Theme(
        name="perfguard-light",
        primary="#0067a8",
        secondary="#00755a",
        accent="#8a4a9e",
        warning="#a85a00",
        error="#b3260e",
        success="#00755a",
        foreground="#1c232b",
        background="#fbfbf9",
        surface="#eef0f2",
        panel="#eef0f2",
        dark=False,
        variables={_CURSOR: "#d3e4f2", "border": "#b8c0c9", "border-blurred": "#b8c0c9"},
    ),
    Theme(
        name="perfguard-ansi",
        ansi=True,
        primary="ansi_blue",
        secondary="ansi_cyan",
        warning="ansi_yellow",
        error="ansi_red",
        success="ansi_green",
        accent="ansi_magenta",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        dark=True,
        variables={
            _CURSOR: "ansi_default",
            "ansi-background": "ansi_black",
            "ansi-foreground": "ansi_white",
            "border": "ansi_default",
            "border-blurred": "ansi_default",
            "block-cursor-foreground": "ansi_black",
            "block-cursor-background": "ansi_white",
            "input-cursor-text-style": "reverse",
        },
    ),
)


def styles_for(theme: Theme) -> Mapping[Role, Style]:
    """What roles look like in a theme; themes that are not perfguard's own take the nearest of its palettes."""
    texts = _STYLES.get(theme.name)
    if texts is None:
        texts = _ANSI if theme.ansi else _DARK if theme.dark else _LIGHT
    return {role: Style.parse(text) for role, text in texts.items()}
