"""Text of programs inside Markdown, where it must stay text."""

from __future__ import annotations

import re

from perfguard.units import printable

_BREAK = "\N{ZERO WIDTH SPACE}"
_SAFE = {
    "\\": "\\\\",
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "|": "\\|",
    "`": "'",
    "*": "\\*",
    "_": "\\_",
    "[": "\\[",
    "]": "\\]",
    "~": "\\~",
    "$": "&#36;",
}
"""What Markdown, HTML or GitHub's mathematics would read as more than text."""
_REFERENCES = re.compile(r"(?<=[@#])(?=\w)|(?<=[A-Za-z]:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)", re.IGNORECASE)
"""Where GitHub would make a mention, a reference to an issue or a link out of plain text."""


def escape(text: str) -> str:
    """Text that Markdown, HTML and GitHub leave as it is: no markup, mention, reference or link comes of it."""
    broken = _REFERENCES.sub(_BREAK, " ".join(printable(text).split()))
    return "".join(_SAFE.get(character, character) for character in broken)


def code(text: str) -> str:
    """A code span that holds the text, also inside a table."""
    safe = printable(text).replace("`", "'").replace("|", "\\|")
    return f"`{' '.join(safe.split())}`"
