"""What differs between two fingerprints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfguard.codec import to_builtins
from perfguard.records.machine.fingerprint import Fingerprint

_MOST = 60
_LEFT_OUT = ("notes",)
_UNKNOWN = "-"


def changed_facts(before: Fingerprint, after: Fingerprint) -> tuple[tuple[str, str, str], ...]:
    """Name, old and new value of each fact that differs, the first sixty; a fact that is not known is `-`."""
    sides = [dict(_flat(to_builtins(found), "")) for found in (before, after)]
    names = [name for name in {**sides[0], **sides[1]} if sides[0].get(name) != sides[1].get(name)]
    return tuple((name, *(side.get(name, _UNKNOWN) for side in sides)) for name in names[:_MOST])  # type: ignore[misc]


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if name or key not in _LEFT_OUT:
                yield from _flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(part, (Mapping, list)) for part in value):
        for place, part in enumerate(value):
            yield from _flat(part, f"{name}[{place}]")
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    elif value is not None:
        yield name, str(value)
