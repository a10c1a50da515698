"""Themes, and the colours of roles in each: blue is faster, orange slower, which colour-blind readers distinguish.

Source: Okabe and Ito (2008), Color Universal Design, the palette of eight colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.style import Style
from textual.theme import Theme

from perfguard.tui.drawing.spans import Role

DEFAULT_THEME = "perfguard-dark"
PLAIN_THEME = "perfguard-ansi"  # For terminals with 16 colours, and where no colour is wanted

_CONTRAST_THEME = "perfguard-contrast"
_RED_GREEN_THEME = "perfguard-red-green"

_DARK, _LIGHT, _CONTRAST, _ANSI = range(4)
_PALETTES = {
    Role.PLAIN: ("", "", "", ""),
    Role.MUTED: ("#8a93a2", "#5b6472", "#d0d0d0", "dim"),
    Role.STRONG: ("bold", "bold", "bold", "bold"),
    Role.TITLE: ("bold #9fb3c8", "bold #33475b", "bold #ffffff", "bold underline"),
    Role.ACCENT: ("#cc9ade", "#8a4a9e", "bold #ffb3ff", "magenta"),
    Role.AXIS: ("#5f6b7a", "#9aa3ad", "#b0b0b0", "dim"),
    Role.SLOWER: ("bold #f0a202", "bold #a85a00", "bold #ffb000", "bold yellow"),
    Role.FASTER: ("bold #56b4e9", "bold #0067a8", "bold #66ccff", "bold cyan"),
    Role.SAME: ("#b4bcc8", "#444c56", "#ffffff", ""),
    Role.OPEN: ("#f0e442", "#7a6a00", "bold #ffff66", "bold"),
    Role.BROKEN: ("bold #ff7a5c", "bold #b3260e", "bold #ff8f73", "bold red"),
    Role.BASELINE: ("#9aa5b1", "#5b6472", "#d0d0d0", ""),
    Role.CANDIDATE: ("#7fd1b9", "#00755a", "#66ffcc", "green"),
    Role.ACTIVE: ("bold reverse", "bold reverse", "bold reverse", "bold reverse"),
    Role.SLOWER_FRAME: ("#10151c on #f0a202", "#ffffff on #a85a00", "#000000 on #ffb000", "bold reverse yellow"),
    Role.FASTER_FRAME: ("#10151c on #56b4e9", "#ffffff on #0067a8", "#000000 on #66ccff", "bold reverse cyan"),
    Role.SAME_FRAME: ("#e6e9ef on #3b4654", "#1c232b on #d3d8de", "#ffffff on #404040", "reverse dim"),
}
"""Look of each role on dark, on light, in high contrast, in a terminal's own 16 colours."""
_RED_GREEN = {
    Role.SLOWER: "bold #ff6b6b",
    Role.FASTER: "bold #5fd38d",
    Role.SLOWER_FRAME: "#10151c on #ff6b6b",
    Role.FASTER_FRAME: "#10151c on #5fd38d",
}

_COLOURS = ("primary", "secondary", "accent", "warning", "error", "foreground", "background", "surface")
_ON_DARK = "#56b4e9 #7fd1b9 #cc9ade #f0a202 #ff7a5c #e6e9ef #10151c #18202a"
_ON_BLACK = "#56b4e9 #7fd1b9 #cc9ade #f0a202 #ff7a5c #e6e9ef #000000 #000000"
_ON_LIGHT = "#0067a8 #00755a #8a4a9e #a85a00 #b3260e #1c232b #fbfbf9 #eef0f2"


def _theme(name: str, colours: str, *, cursor: str, border: str = "#3b4654", is_dark: bool = True) -> Theme:
    """A theme of the colours that `_COLOURS` names; `cursor` is the background of the row under the cursor."""
    named: dict[str, Any] = dict(zip(_COLOURS, colours.split(), strict=True))
    named |= {"success": named["secondary"], "panel": named["surface"]}
    variables = {"row-cursor": cursor, "border": border, "border-blurred": border}
    return Theme(name=name, **named, dark=is_dark, variables=variables)


THEMES: tuple[Theme, ...] = (
    _theme(DEFAULT_THEME, _ON_DARK, cursor="#26374a"),
    _theme(_RED_GREEN_THEME, _ON_DARK, cursor="#26374a"),
    _theme(_CONTRAST_THEME, _ON_BLACK, cursor="#003a5c"),
    _theme("perfguard-light", _ON_LIGHT, cursor="#d3e4f2", border="#b8c0c9", is_dark=False),
    Theme(
        name=PLAIN_THEME,
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
            "row-cursor": "ansi_default",
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
    palette = _ANSI if theme.ansi else _DARK if theme.dark else _LIGHT
    if theme.name == _CONTRAST_THEME:
        palette = _CONTRAST
    texts = {role: looks[palette] for role, looks in _PALETTES.items()}
    if theme.name == _RED_GREEN_THEME:
        texts |= _RED_GREEN
    return {role: Style.parse(text) for role, text in texts.items()}
