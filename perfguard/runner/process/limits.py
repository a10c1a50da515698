"""Limits on the memory and the processes of code that is not trusted: control groups, where some may be made."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

MOST_PROCESSES = 4096  # And threads
_SHARE_OF_MEMORY = 0.9
_PLACE = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "perfguard-"
_LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max", "pids.max")}
"""By controller: the file of version 2 and of version 1. Source: linux/Documentation/admin-guide, cgroup-v2 and -v1."""


@functools.cache
def limited_groups(place: Path = _PLACE, own: Path = _OWN) -> tuple[Path, ...]:
    """Control groups for the processes that are not trusted; empty where this process may make none.

    They end with this process. Where one was killed, the next one that makes some removes its groups.
    """
    groups = [group for controller in _LIMITS if (group := _group(controller, place, own)) is not None]
    found = tuple(dict.fromkeys(groups))
    atexit.register(_remove, found)
    return found


def memory_bytes() -> int:
    """What the processes that are not trusted may have together."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _SHARE_OF_MEMORY)


def _group(controller: str, place: Path, own: Path) -> Path | None:
    """The group of a controller with its limit set; None where it may not be made, or has no such limit."""
    limit = memory_bytes() if controller == "memory" else MOST_PROCESSES
    for base, file in _places(controller, place, own):
        _sweep(base)
        group = base / f"{_PREFIX}{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            if (group / file).exists():
                (group / file).write_text(str(limit), encoding="ascii")
                return group
            if not any((group / other).exists() for files in _LIMITS.values() for other in files):
                group.rmdir()
    return None


def _places(controller: str, place: Path, own: Path) -> Iterator[tuple[Path, str]]:
    """Where this process is in a controller's tree, and the file of the limit there."""
    newer, older = _LIMITS[controller]
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            yield place / names / path.lstrip("/"), older
        elif not names:
            yield place / path.lstrip("/"), newer


def _sweep(base: Path) -> None:
    """Remove groups of processes that are gone."""
    for left in base.glob(f"{_PREFIX}*/"):
        if not Path(f"/proc/{left.name.removeprefix(_PREFIX)}").exists():
            _remove((left,))


def _remove(groups: tuple[Path, ...]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            group.rmdir()
