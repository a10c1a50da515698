"""Text that others wrote, on its way into a page."""

from __future__ import annotations

import json
from typing import Any

from perfguard.units import printable

MOST_CHARACTERS = 2000
"""A longer text is cut: names and sentences of perfguard have some hundred characters."""
LONGEST_NAME = 160
"""Of a case in a table; where its evidence stands it has all of its name."""
_ISLAND_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\N{LINE SEPARATOR}": "\\u2028"} | {
    "\N{PARAGRAPH SEPARATOR}": "\\u2029"
}


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text without control characters, at most so long. It is not escaped: whoever writes markup does that."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(cut)


def island(value: Any) -> str:
    """Plain data as JSON that can stand inside a script element: no text of it can end that or begin another."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return "".join(_ISLAND_ESCAPES.get(character, character) for character in text)
