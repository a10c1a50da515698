"""SVG as a tree of elements, from which markup is written; whatever is no element is escaped.

Places along an axis are percentages, places across it pixels: a picture is as wide as its page and its words keep their
size. Colours come from classes, because a page under a strict policy may have no style attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from msgspec import Struct

from perfguard.report.escaping import shown

Value = str | float | int | None
_TAGS = frozenset({"svg", "g", "rect", "line", "circle", "path", "text", "title"})
_ATTRIBUTE = re.compile(r"(?!on)[a-z][a-zA-Z0-9-]*")
_PATH = "d"  # Holds numbers only, as many as a curve has, and half a curve is none
_REFUSED = frozenset({"style", "href", "src"})


class Element(Struct, frozen=True):
    """One element; a template takes it as markup."""

    tag: str  # Its name
    attributes: tuple[tuple[str, str], ...]  # Names and values, not escaped
    children: tuple[Element | str, ...]  # What it holds: elements, and text that is not escaped

    def __html__(self) -> str:
        """Markup, with everything foreign escaped."""
        written = "".join(
            f' {name}="{escape(value if name == _PATH else shown(value))}"' for name, value in self.attributes
        )
        inside = "".join(
            child.__html__() if isinstance(child, Element) else escape(shown(child)) for child in self.children
        )
        return f"<{self.tag}{written}>{inside}</{self.tag}>"


def element(tag: str, *children: Element | str, **attributes: Value) -> Element:
    """One element; attributes as in `class_`, `stroke_width`, `viewBox`: None leaves one out, numbers are pixels.

    Raises:
        ValueError: The element or an attribute could do more than draw.
    """
    if tag not in _TAGS:
        raise ValueError(f"<{tag}> is no element that a picture is drawn with")
    written = []
    for name, value in attributes.items():
        known = name.rstrip("_").replace("_", "-")
        if not _ATTRIBUTE.fullmatch(known) or known in _REFUSED:
            raise ValueError(f"{known!r} is no attribute that a picture is drawn with")
        if value is not None:
            written.append((known, value if isinstance(value, str) else number(value)))
    return Element(tag, tuple(written), children)


def picture(
    label: str, height: float, children: Iterable[Element], *, class_: str = "plot", role: str = "img"
) -> Element:
    """A picture as wide as its place, some pixels high, the lowest child drawn first.

    `label` says what it shows to those who cannot see it. `role` is `group` where its parts can be walked through.
    """
    return element("svg", *children, class_=class_, role=role, aria_label=label, width="100%", height=height)


def stretched(path: str, top: float, floor: float, *, class_: str) -> Element:
    """A path in a box of 1000 by 1000, stretched between two heights of the picture; its line keeps its width."""
    line = element("path", d=path, class_=class_, vector_effect="non-scaling-stroke")
    return element(
        "svg", line, x="0%", width="100%", y=top, height=floor - top,
        viewBox="0 0 1000 1000", preserveAspectRatio="none",
    )  # fmt: skip


def percent(share: float) -> str:
    """A place along an axis: `12.5%` for 0.125."""
    return f"{number(share * 100)}%"


def number(value: float) -> str:
    """As short as it may be: less than a hundredth of a pixel or percent is never seen."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
