"""What a callable holds: the models, optimizers and data loaders that it works with."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence, Sized
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, cast

MAX_OBJECTS = 200_000
"""Objects after which a search ends; a program's own data may be any number of them."""
MAX_ENTRIES = 10_000
"""Entries of a list or a mapping from which it is data, and not looked into."""

_CLOSED = (ModuleType, type, CodeType, FrameType, BuiltinFunctionType, str, bytes, int, float, complex, bool)
"""Objects that lead to nothing of the program, or to all of it."""
_CONTAINERS = (list, tuple, dict, set, frozenset)
_LIBRARIES = ("torch", "numpy", "perfguard", "intel_extension_for_pytorch")


def reachable(roots: Iterable[object], kinds: tuple[type, ...]) -> list[Any]:
    """Objects of these kinds that the roots hold, in the order in which they are met, the nearest first.

    Of the names that a function's module knows, those that the function mentions are followed.
    """
    found: list[Any] = []
    seen: set[int] = set()
    level: list[object] = list(roots)
    while level and len(seen) < MAX_OBJECTS:
        below: list[object] = []
        for item in level:
            if id(item) in seen or is_kind(item, _CLOSED):
                continue
            seen.add(id(item))
            if is_kind(item, kinds):
                found.append(item)
            below += _held_by(item)
        level = below
    return found


def everywhere(kinds: tuple[type, ...]) -> list[Any]:
    """All living objects of these kinds, the oldest first as far as the collector knows."""
    return [item for item in gc.get_objects() if is_kind(item, kinds)]


def is_kind(item: object, kinds: tuple[type, ...]) -> bool:
    """Whether an object is of these by its real class: proxies tell isinstance another, and may import it for that."""
    return issubclass(type(item), kinds)


def _held_by(item: object) -> Sequence[object]:
    if is_kind(item, (FunctionType,)):
        return _held_by_function(item)
    if is_kind(item, _CONTAINERS) and len(cast("Sized", item)) > MAX_ENTRIES:
        return ()
    return gc.get_referents(item)


def _held_by_function(function: Any) -> list[object]:
    if (function.__module__ or "").partition(".")[0] in _LIBRARIES:
        named: list[object] = []
    else:
        names = function.__code__.co_names
        named = [function.__globals__[name] for name in names if name in function.__globals__]
    held = (function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    return [*(each for each in held if each), *named]
