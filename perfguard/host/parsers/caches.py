"""Caches, counted by who shares them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfguard.host.parsers.parsing import Files, parse_count, parse_size_bytes, read_cpus_or_mask
from perfguard.records.machine.fingerprint import Cache

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_MAX_LEVEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    level: int
    kind: str
    size_bytes: int | None
    shared_by: int | None


def read_caches(files: Files, online: Sequence[int]) -> tuple[Cache, ...]:
    """Caches of the online CPUs, nearest and largest first; equal ones counted together."""
    members = frozenset(online)
    seen: set[tuple[int, str, frozenset[int]]] = set()
    counts: Counter[_Kind] = Counter()
    for cpu in online:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in files.names(folder):
            _count(files, f"{folder}/{index}", members, seen, counts)
    found = [
        Cache(
            level=kind.level,
            kind=kind.kind,
            size_bytes=kind.size_bytes,
            instances=count if kind.shared_by is not None else None,
            shared_by=kind.shared_by,
        )
        for kind, count in counts.items()
    ]
    return tuple(
        sorted(found, key=lambda cache: (cache.level, cache.kind, -(cache.size_bytes or 0), -(cache.shared_by or 0)))
    )


def _count(
    files: Files,
    folder: str,
    online: frozenset[int],
    seen: set[tuple[int, str, frozenset[int]]],
    counts: Counter[_Kind],
) -> None:
    level = parse_count(files.text(f"{folder}/level"))
    if level is None or not 0 < level <= _MAX_LEVEL:
        return
    kind = _KINDS.get((files.text(f"{folder}/type") or "").strip(), "unknown")
    sharing = read_cpus_or_mask(files, f"{folder}/shared_cpu_list", f"{folder}/shared_cpu_map")
    sharers = (sharing or frozenset()) & online
    if sharers and (level, kind, sharers) in seen:
        return
    seen.add((level, kind, sharers))
    size = parse_size_bytes(files.text(f"{folder}/size"))
    counts[_Kind(level=level, kind=kind, size_bytes=size, shared_by=len(sharers) or None)] += 1
