"""What control groups allow: cpuset, CPU quota and memory; both versions, wherever they are mounted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfguard.host.parsers.parsing import Files, parse_count, parse_int, read_cpus
from perfguard.records.machine.fingerprint import Limits, QuotaState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_LIMIT_BYTES = 1 << 60
_MAX_ANCESTORS = 64
_MAX_MOUNTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted hierarchy."""

    folder: str
    """Where it is mounted, relative to the machine's root."""
    root: str
    """The group that the mount shows at its top; not `/` inside containers."""
    version: int
    """1 or 2; 0 for the old cpuset file system."""
    controllers: frozenset[str]
    """Controllers of a version 1 hierarchy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A CPU limit, or the knowledge that there is none."""

    state: QuotaState
    """Limited, unlimited or unknown."""
    cpus: float | None = None
    """The tightest limit of the group and those above it."""


def read_limits(files: Files) -> Limits:
    """The limits of the process that the files were read by."""
    mounts = parse_mounts(files)
    groups = parse_membership(files)
    cpu = _groups_for("cpu", mounts, groups)
    cpuset = _groups_for("cpuset", mounts, groups)
    quota = _quota(files, cpu)
    ruling = cpuset if cpuset.version is not None else cpu
    return Limits(
        cgroup_version=2 if ruling.version == 2 else (None if ruling.version is None else 1),
        allowed_cpus=_nearest(files, cpuset, ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus")),
        allowed_nodes=_nearest(
            files, cpuset, ("cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems", "mems")
        ),
        quota=quota.state,
        quota_cpus=quota.cpus,
        throttled_periods=_throttled(files, cpu),
        memory_bytes=_memory(files, _groups_for("memory", mounts, groups)),
    )


def parse_mounts(files: Files) -> tuple[Mount, ...]:
    """Mounted hierarchies; `mountinfo` first, which alone knows what a container's mount shows."""
    lines = (files.text("proc/self/mountinfo") or "").splitlines()[:_MAX_MOUNTS]
    found = [mount for line in lines if (mount := _mountinfo_line(line.split())) is not None]
    if not found:
        text = files.text("proc/self/mounts") or files.text("proc/mounts") or ""
        found = [
            mount
            for line in text.splitlines()[:_MAX_MOUNTS]
            if len(words := line.split()) >= 4
            and (mount := _mount(folder=words[1], root="/", kind=words[2], options=words[3])) is not None
        ]
    return tuple(found)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    version: int | None
    folders: tuple[str, ...] = ()
    at_root: bool = False


def _groups_for(controller: str, mounts: Sequence[Mount], groups: dict[str, str]) -> _Groups:
    """Folders of the group and those above it, nearest first."""
    of_version_1 = [mount for mount in mounts if controller in mount.controllers]
    for mount in (*of_version_1, *(mount for mount in mounts if mount.version == 2)):
        path = groups.get("" if mount.version == 2 else controller)
        if path is not None:
            return _Groups(
                version=mount.version, folders=tuple(_upwards(mount, path)), at_root=path == "/" and mount.root == "/"
            )
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
    if "-" not in words[6:]:
        return None
    tail = words[words.index("-", 6) + 1 :]
    if len(tail) < 3:
        return None
    return _mount(folder=words[4], root=words[3], kind=tail[0], options=tail[2])


def _mount(*, folder: str, root: str, kind: str, options: str) -> Mount | None:
    version = {"cgroup": 1, "cgroup2": 2, "cpuset": 0}.get(kind)
    place = folder.replace("\\040", " ").strip("/")
    if version is None or ".." in place.split("/"):
        return None
    controllers = {0: frozenset({"cpuset"}), 1: frozenset(options.split(",")), 2: frozenset[str]()}[version]
    return Mount(folder=place, root=root, version=version, controllers=controllers)


def _nearest(files: Files, groups: _Groups, names: Sequence[str]) -> tuple[int, ...] | None:
    for folder in groups.folders:
        for name in names:
            ids = read_cpus(files, f"{folder}/{name}")
            if ids:
                return tuple(sorted(ids))
    return None


def _quota(files: Files, groups: _Groups) -> Quota:
    found = [quota for folder in groups.folders if (quota := _folder_quota(files, folder, groups.version)) is not None]
    limits = [quota.cpus for quota in found if quota.cpus is not None]
    if limits:
        return Quota(state=QuotaState.LIMITED, cpus=min(limits))
    readable_root = groups.at_root and any(files.names(folder) for folder in groups.folders)
    return Quota(state=QuotaState.UNLIMITED if found or readable_root else QuotaState.UNKNOWN)


def _folder_quota(files: Files, folder: str, version: int | None) -> Quota | None:
    if version == 2:
        words = (files.text(f"{folder}/cpu.max") or "").split()
        quota_text, period = (words[0], parse_count(words[1])) if len(words) == 2 else ("", None)
    else:
        quota_text = (files.text(f"{folder}/cpu.cfs_quota_us") or "").strip()
        period = parse_count(files.text(f"{folder}/cpu.cfs_period_us"))
    if quota_text in {"max", "-1"}:
        return Quota(state=QuotaState.UNLIMITED)
    quota = parse_int(quota_text)
    if quota is None or quota <= 0 or not period:
        return None
    return Quota(state=QuotaState.LIMITED, cpus=quota / period)


def _throttled(files: Files, groups: _Groups) -> int | None:
    for folder in groups.folders:
        for line in (files.text(f"{folder}/cpu.stat") or "").splitlines():
            key, _, value = line.partition(" ")
            if key == "nr_throttled":
                return parse_count(value)
    return None


def _memory(files: Files, groups: _Groups) -> int | None:
    name = "memory.max" if groups.version == 2 else "memory.limit_in_bytes"
    limits = [parse_count(files.text(f"{folder}/{name}")) for folder in groups.folders]
    return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES), default=None)
