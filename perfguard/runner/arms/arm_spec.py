"""Arms as typed: text to ArmSpec."""

from __future__ import annotations

import difflib
import re

from perfguard.errors import ArmError
from perfguard.records.plan import ArmSpec

_KINDS = ("git", "dir", "python", "env", "stack")
_SPLIT = re.compile(r"\+(?=(?:" + "|".join(_KINDS) + r"):)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")  # values may hold commas, as MALLOC_CONF does
STACKS = ("default", "ipex")
_EXAMPLES = "stored, git:REV, dir:PATH, python:PATH, env:KEY=VALUE,…, stack:ipex, or several joined with '+'"


def parse_arm(text: str) -> ArmSpec:
    """The arm that `text` describes.

    Raises:
        ArmError: Unknown kind, a part given twice, an empty value, `stored` combined with something else, or both a
            revision and a directory.
    """
    if text == "stored":
        return ArmSpec(text=text, stored=True)
    parts: dict[str, str] = {}
    for part in _SPLIT.split(text):
        kind, colon, value = part.partition(":")
        _require_kind(kind, colon, text)
        if not value:
            raise ArmError(f"arm {text!r}: nothing follows {kind + ':'!r}")
        if kind in parts:
            raise ArmError(f"arm {text!r} gives {kind + ':'!r} twice; use one, env: takes several KEY=VALUE")
        parts[kind] = value
    if "git" in parts and "dir" in parts:
        raise ArmError(f"arm {text!r} names both a revision and a directory; an arm has one source tree")
    stack = parts.get("stack")
    if stack is not None and stack not in STACKS:
        raise ArmError(f"arm {text!r}: unknown stack {stack!r}; choose from {', '.join(STACKS)}")
    return ArmSpec(
        text=text,
        revision=parts.get("git"),
        directory=parts.get("dir"),
        interpreter=parts.get("python"),
        environment=_variables(parts.get("env"), text),
        stack=None if stack == "default" else stack,
    )


def _require_kind(kind: str, colon: str, text: str) -> None:
    if kind in _KINDS and colon:
        return
    if text.startswith("stored+"):
        raise ArmError(f"arm {text!r}: 'stored' stands alone; nothing can be added to what was measured earlier")
    near = difflib.get_close_matches(kind, (*_KINDS, "stored"), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ArmError(f"arm {text!r}: {kind!r} is no kind of arm; {hint}use {_EXAMPLES}")


def _variables(text: str | None, arm: str) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    found: dict[str, str] = {}
    for pair in _NEXT_VARIABLE.split(text):
        key, equals, value = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(key):
            raise ArmError(f"arm {arm!r}: {pair!r} is not KEY=VALUE")
        if key in found:
            raise ArmError(f"arm {arm!r} sets {key} twice")
        found[key] = value
    return tuple(sorted(found.items()))
