"""Texts that a stranger could put into a result, and a look at Markdown as GitHub shows it."""

from __future__ import annotations

import re
from enum import Enum
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt

from perfguard.codec import field_names, is_record

TEXTS = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><b>bold</b>",
    "</summary></details><details open><h1>big</h1>",
    "<!-- perfguard:gate --><!-- run 99999999999.1 -->",
    "[click](https://evil.example) ![image](https://evil.example/x.png) <https://evil.example>",
    "https://evil.example http://evil.example/a_b ftp://evil.example www.evil.example mailto:eve@evil.example",
    "[ref]: https://evil.example",
    "@octocat @octo/team hi@evil.example octo/net#12 #1 GH-12 gh-13 octo/net@0123456",
    "**b** _i_ ~~s~~ `code` ``` ~~~ \\` \\*",
    "```\n\n# Heading\n\n```",
    "~~~\n@octocat\n~~~",
    "a\n\n# Heading\n\n- item\n\n---\n\n> quote\n\n1. one",
    "# Heading",
    "- [ ] task",
    "1. one",
    "===",
    "    indented",
    "| a | b |\n|---|---|\n| c | d |",
    "$\\unicode{x}$ $$x$$ $`x`$",
    "&lt;b&gt; &#64;octocat &commat;octocat &num;1",
    "\x1b[31m\x00\x07\r\x0b\x0c\x85\u2028\u2029::error::x",
    "\u202eevil\u2066\u2069\u200f\u200b\ufeff",
    "x'; rm -rf ~; echo '`$(id)`",
    "x' --exit-zero -c 'y",
    "\\",
    "*" * 50,
    "[" * 2000,
    "a" * 100_000,
    "\U0001f600" * 1000,
    "",
    "]]>--><!--",
)

_BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_MENTION = re.compile(r"(?<![\w`])@[A-Za-z0-9]")
_ISSUE = re.compile(r"(?<![\w&])#\d|\bGH-\d", re.IGNORECASE)
_BARE_LINK = re.compile(r"(https?|ftp)://|\bwww\.|\bmailto:\w+@\w", re.IGNORECASE)
_OURS = {"details", "summary", "h3", "h4", "p", "strong", "code", "pre", "ul", "li", "a"}
_OUR_TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


class _Page(HTMLParser):
    """Tags, links and the text outside of code."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.code: list[str] = []
        self.comments: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        assert all(name in ("href", "class") or value == "text-align:right" for name, value in attrs), attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._inside, tag
        assert self._inside.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        (self.code if "code" in self._inside else self.text).append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def shown(markdown: str) -> _Page:
    """A text as GitHub makes HTML of it, before it takes away what it thinks harmful."""
    page = _Page()
    renderer = MarkdownIt("gfm-like", {"html": True, "linkify": True, "typographer": False})
    renderer.linkify.set({"fuzzy_link": False, "fuzzy_email": True, "fuzzy_ip": False})  # what GitHub links
    renderer.linkify.add("//", None)
    page.feed(renderer.render(markdown))
    page.close()
    return page


def assert_harmless(markdown: str, *, links: tuple[str, ...] = ()) -> None:
    """Nothing in it but what perfguard itself writes: no link, image, mention, reference, markup or trick."""
    page = shown(markdown)
    text = "\0".join(page.text)
    assert set(page.tags) <= _OURS | _OUR_TABLE, set(page.tags) - _OURS - _OUR_TABLE
    assert page.links == list(links)
    assert len(page.comments) == 1, page.comments
    for pattern in (_MENTION, _ISSUE, _BARE_LINK):
        found = pattern.search(text)
        assert found is None, text[max(0, found.start() - 40) : found.end() + 40]
    assert "$" not in text
    assert not _BIDI.search(markdown)
    assert all(character.isprintable() or character in "\n\u200b" for character in markdown)


def poisoned(value: Any, text: str, *, keep: frozenset[str] = frozenset()) -> Any:
    """A value of the model with a text in place of each string in it, keys of dictionaries too."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return text
    if is_record(type(value)):
        fields = {name: getattr(value, name) for name in field_names(type(value))}
        changed = {name: item if name in keep else poisoned(item, text, keep=keep) for name, item in fields.items()}
        return type(value)(**changed)
    if isinstance(value, dict):
        return {
            poisoned(key, text, keep=keep) if key not in ("baseline", "candidate") else key: poisoned(
                item, text, keep=keep
            )
            for key, item in value.items()
        }
    if isinstance(value, tuple):
        return tuple(poisoned(item, text, keep=keep) for item in value)
    return value
