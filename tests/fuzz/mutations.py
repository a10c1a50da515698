"""Ways to damage a file: a value in its JSON, a line, or its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

NASTY = (
    None, True, -1, 0, 0.5, 1e308, -1e308, float("nan"), float("inf"), 10**400, -(2**63) - 1, 2**31, "", "\ud800",
    "\u202e\x1b[31m\x00", "../../etc/passwd", "x" * 5_000, "9" * 400, [], {}, [[]], [{}] * 200, {"": {}},
    "nan", "1e999", "-0", "2026-13-45T99:99:99Z",
)  # fmt: skip
_DEEP = b"[" * 20_000 + b"]" * 20_000
_LINES = (b"", b"\x00", _DEEP, b"{" * 5_000, b"=" * 5_000, b"\xff\xfe", b'{"a": ' + b"9" * 5_000 + b"}")
_PIECES = (b"\x00", b"\xff", b"-", b"0" * 400, b'"', b"}", b"[[[[", b"NaN")


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        content = draw.choice(_WAYS)(content, draw)
    return content


def _value(content: bytes, draw: random.Random) -> bytes:
    """Another value somewhere in JSON, or in one line of JSON lines."""
    lines = content.split(b"\n")
    place = None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        place = draw.randrange(len(lines))
        try:
            document = json.loads(lines[place])
        except (ValueError, RecursionError):
            return _bytes(content, draw)
    changed = json.dumps(_changed(document, draw)).encode()
    if place is None:
        return changed
    return b"\n".join([*lines[:place], changed, *lines[place + 1 :]])


def _changed(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, (list, dict)) or not value or draw.random() < 0.1:
        return draw.choice(NASTY)
    if isinstance(value, list):
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value[:place] + value[place + 1 :]
        return [*value[:place], _changed(value[place], draw), *value[place + 1 :]]
    key = draw.choice(list(value))
    if draw.random() < 0.15:
        return {name: each for name, each in value.items() if name != key}
    if draw.random() < 0.1:
        return {**value, draw.choice(["", "\ud800", "schema", key.upper()]): draw.choice(NASTY)}
    return {**value, key: _changed(value[key], draw)}


def _line(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    place = draw.randrange(len(lines))
    way = draw.randrange(4)
    if way == 0:
        del lines[place]
    elif way == 1:
        lines.insert(place, lines[draw.randrange(len(lines))])
    elif way == 2:
        lines[place] = lines[place] * 50
    else:
        lines[place] = draw.choice(
            (b"", b"\x00", _DEEP, b"{" * 5_000, b"=" * 5_000, b"\xff\xfe", b'{"a": ' + b"9" * 5_000 + b"}")
        )
    return b"\n".join(lines)


def _bytes(content: bytes, draw: random.Random) -> bytes:
    if not content:
        return _DEEP
    place, way = draw.randrange(len(content)), draw.randrange(4)
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
    if way == 2:
        stop = min(len(content), place + draw.randrange(1, 64))
        return content[:place] + content[stop:]
    return (
        content[:place]
        + draw.choice((b"\x00", b"\xff", b"-", b"0" * 400, b'"', b"}", b"[[[[", b"NaN"))
        + content[place:]
    )


_WAYS = (_value, _value, _value, _line, _bytes)
