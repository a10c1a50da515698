"""Text of programs inside Markdown and pages, where it must stay text."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from perfguard.units import printable

_BREAK = "\N{ZERO WIDTH SPACE}"
_DOLLAR = "\N{FULLWIDTH DOLLAR SIGN}"
_SAFE = str.maketrans(
    {
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
        "$": _DOLLAR,
    }
)
"""What Markdown or HTML would read as more than text. GitHub's mathematics knows no escape outside a formula."""
_REFERENCES = re.compile(
    r"(?<=[@#])(?=\w)|(?<=[A-Za-z]:)(?=//)|(?<=www)(?=\.)|(?<=mailto:)(?=\S)|(?<=xmpp:)(?=\S)|(?<=GH-)(?=\d)",
    re.IGNORECASE,
)
"""Where GitHub would make a mention, a reference to an issue or a link out of plain text."""
_BLOCK = re.compile(r"(?=(?:#{1,6}|[-+=]+|\d{1,9}[.)])(?:\s|$))")
"""Where a line of text would begin a heading, a list or a rule."""


def escape(text: str) -> str:
    """Text that Markdown, HTML and GitHub leave as it is: no markup, mention, reference or link comes of it."""
    line = _one_line(text)
    begin = _BREAK if _BLOCK.match(line) else ""
    return _unlinked(begin + line).translate(_SAFE)


def escape_html(text: str) -> str:
    """The same for text between tags, where Markdown is not read."""
    return html.escape(_unlinked(_one_line(text))).replace("$", _DOLLAR)


def code(text: str) -> str:
    """A code span that holds the text, also inside a table."""
    return f"`{_one_line(text).replace('`', chr(39)).replace('|', chr(92) + '|') or '-'}`"


def code_block(lines: list[str], language: str) -> str:
    """Lines as they are; only a fence of their own could end the block, and no line has a backtick then."""
    shown = [printable(line).replace("`", "'").rstrip() for line in lines]
    return "\n".join([f"```{language}", *shown, "```"])


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _unlinked(line: str) -> str:
    return _REFERENCES.sub(_BREAK, line)


MOST_CHARACTERS = 2000  # A longer text is cut: names and sentences of perfguard have some hundred characters
LONGEST_NAME = 160  # Of a case in a table; where its evidence stands it has all of its name
_ISLAND_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    """Text without control characters, at most so long. It is not escaped: whoever writes markup does that."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(cut)


def island(value: Any) -> str:
    """Plain data as JSON that can stand inside a script element: no text of it can end that or begin another."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return text.translate(_ISLAND_ESCAPES)
