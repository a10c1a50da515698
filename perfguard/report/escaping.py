"""Text of programs inside Markdown, where it must stay text."""

from __future__ import annotations

from perfguard.units import printable


def escape(text: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    for plain, safe in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "\\|"),
        ("`", "'"),
        ("*", "\\*"),
        ("_", "\\_"),
    ):
        text = text.replace(plain, safe)
    return " ".join(printable(text).split())


def code(text: str) -> str:
    """A code span that holds the text, also inside a table."""
    safe = printable(text).replace("`", "'").replace("|", "\\|")
    return f"`{' '.join(safe.split())}`"
