"""Lines of text whose parts have roles; a theme turns roles into colours when they are painted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from perfguard.units import printable

ELLIPSIS = "…"
_PARAMETER_NAME = re.compile(r"([\[,])\w+=")


class Role(str, Enum):
    """What a piece of text stands for. No role is told by its colour alone: a word or sign says the same."""

    PLAIN = "plain"
    MUTED = "muted"
    STRONG = "strong"
    TITLE = "title"
    ACCENT = "accent"
    AXIS = "axis"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    OPEN = "open"
    BROKEN = "broken"
    BASELINE = "baseline"
    CANDIDATE = "candidate"
    ACTIVE = "active"
    """The screen that is shown, among the names of all."""


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]
"""One line on the screen."""

EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """A line of its parts; text without a role is plain. Control characters become spaces."""
    spans = (part if isinstance(part, Span) else Span(part) for part in parts)
    return tuple(Span(printable(span.text), span.role) for span in spans if span.text)


def plain(content: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in content)


def width_of(content: Line) -> int:
    """Columns that a line takes."""
    return sum(cell_len(span.text) for span in content)


def fitted(content: Line, width: int, *, align_right: bool = False) -> Line:
    """A line that takes exactly `width` columns: padded, or cut with an ellipsis."""
    missing = width - width_of(content)
    if missing == 0:
        return content
    if missing > 0:
        padding = Span(" " * missing)
        return (padding, *content) if align_right else (*content, padding)
    return _cut_line(content, width)


def _cut_line(content: Line, width: int) -> Line:
    kept: list[Span] = []
    left = width - 1
    if width <= 0:
        return EMPTY
    for span in content:
        length = cell_len(span.text)
        if length > left:
            kept.append(Span(set_cell_size(span.text, left) + ELLIPSIS, span.role))
            break
        kept.append(span)
        left -= length
    return tuple(kept)


def cut(text: str, most: int) -> str:
    """The beginning of a text, at most so many columns, with an ellipsis where some is missing."""
    if cell_len(text) <= most:
        return text
    return set_cell_size(text, most - 1) + ELLIPSIS if most > 0 else ""


def tail(text: str, most: int) -> str:
    """The end of a text, which tells more than its beginning where it is a path."""
    if cell_len(text) <= most:
        return text
    if most <= 0:
        return ""
    kept = ""
    for character in reversed(text):
        if cell_len(character) + cell_len(kept) > most - 1:
            break
        kept = character + kept
    return ELLIPSIS + kept


def shortened(text: str, most: int) -> str:
    """A case's name in so many columns: first its parameters lose their names, since values tell cases apart.

    Then the middle is left out; beginning and end stay.
    """
    if cell_len(text) > most and text.endswith("]"):
        text = _PARAMETER_NAME.sub(r"\1", text)
    if cell_len(text) <= most or most < 5:
        return cut(text, most)
    head = (most - 1) // 2
    return set_cell_size(text, head) + tail(text, most - head)


def wrapped(text: str, width: int, role: Role = Role.PLAIN, *, indent: int = 0) -> list[Line]:
    """A sentence over several lines, broken between words; further lines are indented."""
    lines: list[Line] = []
    current = ""
    for word in _words(printable(text), max(1, width - indent)):
        room = width - (indent if lines else 0)
        candidate = f"{current} {word}" if current else word
        if current and cell_len(candidate) > room:
            lines.append(_indented(current, role, indent if lines else 0))
            current = word
        else:
            current = candidate
    lines.append(_indented(current, role, indent if lines else 0))
    return lines


def _indented(text: str, role: Role, indent: int) -> Line:
    return line(" " * indent, Span(text, role))


def _words(text: str, width: int) -> Iterable[str]:
    """Words; one that is longer than a line comes in pieces."""
    for word in text.split():
        rest = word
        while cell_len(rest) > width:
            piece = set_cell_size(rest, width).rstrip() or rest[0]
            yield piece
            rest = rest[len(piece) :]
        if rest:
            yield rest
