"""Text of programs inside Markdown, where it must stay text."""

from __future__ import annotations

import html
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
    "$": "\N{FULLWIDTH DOLLAR SIGN}",
}
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
    if _BLOCK.match(line):
        line = _BREAK + line
    return "".join(_SAFE.get(character, character) for character in _unlinked(line))


def escape_html(text: str) -> str:
    """The same for text between tags, where Markdown is not read."""
    return html.escape(_unlinked(_one_line(text))).replace("$", _SAFE["$"])


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
