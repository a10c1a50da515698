"""What control groups allow: cpuset, CPU quota and memory; both versions, wherever they are mounted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfguard.host.parsers.parsing import Files, parse_count, parse_int, read_cpus
from perfguard.records.machine.fingerprint import Limits, QuotaState

_NO_LIMIT_BYTES = 1 << 60
_MAX_ANCESTORS = 64
_MAX_MOUNTS = 10_000
_VERSIONS = {"cpuset": 0, "cgroup": 1, "cgroup2": 2}
_CPU_FILES = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus")
_NODE_FILES = ("cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems", "mems")


class Mount(NamedTuple):
    """One mounted hierarchy."""

    folder: str  # Where it is mounted, relative to the machine's root
    root: str  # The group that the mount shows at its top; not `/` inside containers
    version: int  # 1 or 2; 0 for the old cpuset file system
    controllers: frozenset[str]  # Controllers of a version 1 hierarchy


class _Groups(NamedTuple):
    version: int | None
    folders: tuple[str, ...] = ()  # The group and those above it, nearest first
    at_root: bool = False


def read_limits(files: Files) -> Limits:
    """The limits of the process that the files were read by."""
    mounts, membership = parse_mounts(files), parse_membership(files)
    cpu, cpuset, memory = (_groups_for(name, mounts, membership) for name in ("cpu", "cpuset", "memory"))
    quota, quota_cpus = _quota(files, cpu)
    version = cpu.version if cpuset.version is None else cpuset.version
    return Limits(
        cgroup_version=1 if version == 0 else version,
        allowed_cpus=_nearest(files, cpuset, _CPU_FILES),
        allowed_nodes=_nearest(files, cpuset, _NODE_FILES),
        quota=quota,
        quota_cpus=quota_cpus,
        throttled_periods=_throttled(files, cpu),
        memory_bytes=_memory(files, memory),
    )


def parse_mounts(files: Files) -> tuple[Mount, ...]:
    """Mounted hierarchies; `mountinfo` first, which alone knows what a container's mount shows."""
    lines = (files.text("proc/self/mountinfo") or "").splitlines()[:_MAX_MOUNTS]
    found = [_mountinfo_line(line.split()) for line in lines]
    if not any(found):
        lines = (files.text("proc/self/mounts") or files.text("proc/mounts") or "").splitlines()[:_MAX_MOUNTS]
        rows = (line.split() for line in lines)
        found = [_mount(row[1], "/", row[2], row[3]) for row in rows if len(row) >= 4]
    return tuple(mount for mount in found if mount is not None)


def parse_membership(files: Files) -> dict[str, str]:
    """Group path by controller; the unified hierarchy's controller is the empty word."""
    groups: dict[str, str] = {}
    for line in (files.text("proc/self/cgroup") or "").splitlines():
        pieces = line.split(":", 2)
        if len(pieces) == 3 and pieces[2].startswith("/"):
            groups.update(dict.fromkeys(pieces[1].split(","), pieces[2].strip()))
    path = (files.text("proc/self/cpuset") or "").strip()
    if path.startswith("/") and "\n" not in path:
        groups.setdefault("cpuset", path)
        groups.setdefault("", path)
    return groups


def _groups_for(controller: str, mounts: Sequence[Mount], groups: dict[str, str]) -> _Groups:
    of_version_1 = [mount for mount in mounts if controller in mount.controllers]
    for mount in (*of_version_1, *(mount for mount in mounts if mount.version == 2)):
        path = groups.get("" if mount.version == 2 else controller)
        if path is not None:
            return _Groups(mount.version, tuple(_upwards(mount, path)), at_root=path == mount.root == "/")
    return _Groups(version=None)


def _upwards(mount: Mount, path: str) -> Iterator[str]:
    inner = path
    if mount.root != "/" and (path == mount.root or path.startswith(mount.root + "/")):
        inner = path[len(mount.root) :]
    parts = [part for part in inner.split("/") if part]
    if ".." in parts or len(parts) > _MAX_ANCESTORS:
        parts = []
    for length in range(len(parts), -1, -1):
        yield "/".join((mount.folder, *parts[:length]))


def _mountinfo_line(words: Sequence[str]) -> Mount | None:
    tail = words[words.index("-", 6) + 1 :] if "-" in words[6:] else ()
    return _mount(words[4], words[3], tail[0], tail[2]) if len(tail) >= 3 else None


def _mount(folder: str, root: str, kind: str, options: str) -> Mount | None:
    place = folder.replace("\\040", " ").strip("/")
    if kind not in _VERSIONS or ".." in place.split("/"):
        return None
    controllers = {"cpuset": {"cpuset"}, "cgroup": set(options.split(",")), "cgroup2": set[str]()}[kind]
    return Mount(place, root, _VERSIONS[kind], frozenset(controllers))


def _nearest(files: Files, groups: _Groups, names: Sequence[str]) -> tuple[int, ...] | None:
    for folder in groups.folders:
        for name in names:
            if ids := read_cpus(files, f"{folder}/{name}"):
                return tuple(sorted(ids))
    return None


def _quota(files: Files, groups: _Groups) -> tuple[QuotaState, float | None]:
    """The tightest limit of the group and those above it, in CPUs."""
    found = [cpus for folder in groups.folders if (cpus := _folder_quota(files, folder, groups.version)) is not None]
    if limits := [cpus for cpus in found if cpus != math.inf]:
        return QuotaState.LIMITED, min(limits)
    readable_root = groups.at_root and any(files.names(folder) for folder in groups.folders)
    return QuotaState.UNLIMITED if found or readable_root else QuotaState.UNKNOWN, None


def _folder_quota(files: Files, folder: str, version: int | None) -> float | None:
    """CPUs of one folder; inf where it sets no limit, None where it does not say."""
    if version == 2:
        words = (files.text(f"{folder}/cpu.max") or "").split()
    else:
        words = [(files.text(f"{folder}/cpu.cfs_{name}_us") or "").strip() for name in ("quota", "period")]
    quota, period = words if len(words) == 2 else ("", "")
    if quota in {"max", "-1"}:
        return math.inf
    limit, length = parse_int(quota), parse_count(period)
    return limit / length if limit is not None and limit > 0 and length else None


def _throttled(files: Files, groups: _Groups) -> int | None:
    stats = (files.text(f"{folder}/cpu.stat") or "" for folder in groups.folders)
    found = next(filter(None, (re.search(r"^nr_throttled (.*)$", text, re.MULTILINE) for text in stats)), None)
    return parse_count(found[1]) if found else None


def _memory(files: Files, groups: _Groups) -> int | None:
    name = "memory.max" if groups.version == 2 else "memory.limit_in_bytes"
    limits = [parse_count(files.text(f"{folder}/{name}")) for folder in groups.folders]
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)
