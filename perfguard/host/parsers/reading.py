"""The safe reader of a machine's files: the live machine, or one recorded in a folder or a tarball.

Whatever a recorded tree holds, nothing outside it is read: links that lead out count as missing.
"""

# ruff: noqa: PTH114, PTH117, PTH118
# os.path throughout: Path.resolve raises on loops of links, and thousands of paths are faster as strings.

from __future__ import annotations

import lzma
import os
import re
import stat
import tarfile
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from perfguard.errors import FingerprintError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_MEMBERS = 400_000
_MAX_TOTAL_BYTES = 512 << 20
_MAX_FILE_BYTES = 16 << 20
_MAX_NAMES = 100_000
_MAX_DEPTH = 5
_MAX_FOLDERS = 20_000
_MARKS = ("proc/cpuinfo", "sys/devices/system")
_NOT_DESCENDED = frozenset({"proc", "sys", "dev", "lost+found"})
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError)
_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_UNUSED = re.compile(
    r"/sys/devices/pci|/sys/bus/pci|/sys/class/net/|/sys/devices/system/(memory|machinecheck)/|/proc/irq/"
    r"|/node\d+/memory\d+/|/(power|hugepages|cpuidle|hotplug|thermal_throttle|driver|firmware_node|uevent)/"
    r"|/cache/index\d+/(coherency_line_size|number_of_sets|physical_line_partition|ways_of_associativity)/"
    r"|/topology/(cluster_\w+|die_cpus\w*|package_cpus\w*)/"
)
"""Most of a tree, and of no use here: unpacking it would take minutes."""


def extract(archive: Path, target: Path) -> None:
    """Unpack the plain files, folders and inner links of a tarball (plain, gzip, bzip2, xz) into an empty folder.

    Devices, hard links and links that lead out are left out.

    Raises:
        FingerprintError: The file is no tarball, is cut short, or is far too large for a machine's tree.
    """
    try:
        with tarfile.open(archive) as tar:
            links = _unpack_files(tar, target)
    except _BROKEN as error:
        raise FingerprintError(f"{archive} cannot be unpacked ({error}); give a tarball of proc and sys.") from error
    for path, link in links:
        _link_inside(target, path, link)


def _unpack_files(tar: tarfile.TarFile, target: Path) -> list[tuple[Path, str]]:
    """Write folders and files; return the links, made last so that nothing is written through them."""
    links: list[tuple[Path, str]] = []
    total = 0
    for number, member in enumerate(tar):
        if number >= _MAX_MEMBERS or total > _MAX_TOTAL_BYTES:
            raise FingerprintError(f"{tar.name!r} is too large for a recorded machine.")
        pure = PurePosixPath(member.name)
        leads_out = pure.is_absolute() or ".." in pure.parts or "\0" in member.name or not pure.parts
        if leads_out or _UNUSED.search(f"/{member.name}/"):
            continue
        path = target / pure
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            links.append((path, member.linkname))
        elif member.isreg() and member.size <= _MAX_FILE_BYTES:
            total += member.size
            content = tar.extractfile(member)
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is not None and not path.exists():
                path.write_bytes(content.read())
    return links


def _link_inside(target: Path, path: Path, link: str) -> None:
    """Make a relative link whose end lies within the target; drop any other."""
    end = os.path.normpath(os.path.join(path.parent, link))  # nothing may be resolved here
    if os.path.isabs(link) or "\0" in link or not end.startswith(f"{target}{os.sep}"):
        return
    parent = os.path.realpath(path.parent)  # earlier links may lead the parent elsewhere
    if not f"{parent}{os.sep}".startswith(f"{os.path.realpath(target)}{os.sep}"):
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(link)


@dataclass(frozen=True, slots=True)
class MachineTree:
    """Files below a root; every answer is None or empty rather than an exception."""

    root: Path  # The folder that holds `proc` and `sys`
    live: bool  # Whether it is the machine this process runs on
    _inside: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    def text(self, path: str) -> str | None:
        """Contents as text, bad bytes replaced; None unless it is a readable plain file within the root."""
        full = self._locate(path)
        if full is not None and os.path.islink(full):
            target = os.path.realpath(full)
            full = target if self._contains(target) else None
        data = None
        with suppress(OSError):
            data = None if full is None else _read_plain_file(full)
        return None if data is None else data.decode("utf-8", errors="replace")

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted."""
        full = self.place(path)
        with suppress(OSError):
            if full is not None:
                with os.scandir(self.root / full) as entries:
                    return tuple(sorted(entry.name for entry in islice(entries, _MAX_NAMES)))
        return ()

    def place(self, path: str) -> str | None:
        """The path with links resolved, relative to the root."""
        full = os.path.realpath(self.root / path.lstrip("/"))
        if not self._contains(full) or not os.path.lexists(full):
            return None
        return os.path.relpath(full, self.root)

    def _locate(self, path: str) -> str | None:
        folder, _, name = path.lstrip("/").rpartition("/")
        if name in {"", ".", ".."} or "\0" in path:
            return None
        parent = os.path.join(self.root, folder)
        if parent not in self._inside:
            self._inside[parent] = self._contains(os.path.realpath(parent))
        return os.path.join(parent, name) if self._inside[parent] else None

    def _contains(self, real: str) -> bool:
        root = str(self.root)
        return real == root or real.startswith(root.rstrip("/") + "/")


@contextmanager
def open_tree(root: Path) -> Iterator[MachineTree]:
    """Open the machine at a root: `/`, a folder that holds one somewhere, or a tarball.

    Raises:
        FingerprintError: There is no machine, or the tarball is broken.
        UsageError: There are several machines; the message names them.
    """
    if str(root) == "/":
        yield MachineTree(Path("/"), live=True)
        return
    if not root.exists():
        raise UsageError(f"--root {root}: no such folder or file; give a recorded machine's folder or tarball.")
    with TemporaryDirectory(prefix="perfguard-root-") as scratch:
        archive = _archive_at(root)
        folder = root if archive is None else Path(scratch)
        if archive is not None:
            extract(archive, folder)
        yield MachineTree(_find_machine(folder, shown=root), live=False)


def _archive_at(root: Path) -> Path | None:
    if root.is_file():
        return root
    if _machines_below(root):
        return None
    archives = sorted(path for path in _entries(root) if path.is_file() and path.name.endswith(_SUFFIXES))
    if len(archives) > 1:
        names = ", ".join(path.name for path in archives)
        raise UsageError(f"--root {root} holds several tarballs ({names}); name one of them.")
    return archives[0] if archives else None


def _find_machine(folder: Path, *, shown: Path) -> Path:
    found = _machines_below(folder)
    if not found:
        raise FingerprintError(
            f"{shown} holds no machine: neither proc nor sys was found in it; "
            "give the folder that was recorded, or a tarball of it."
        )
    if len(found) > 1:
        names = ", ".join(os.path.relpath(path, folder) for path in found[:8])
        raise UsageError(f"{shown} holds several machines ({names}); unpack it and name one as --root.")
    return Path(os.path.realpath(found[0]))


def _machines_below(folder: Path) -> list[Path]:
    """The machines at the smallest depth, those with CPU files before those with any proc or sys."""
    if folder.name == "sys" and (folder / "devices").is_dir():
        return [folder.parent]
    level, visited = [folder], 0
    for _ in range(_MAX_DEPTH):
        marked = [path for path in level if any((path / mark).exists() for mark in _MARKS)]
        loose = [path for path in level if (path / "proc").is_dir() or (path / "sys").is_dir()]
        if marked or loose:
            return marked or loose
        level = [
            child for path in level for child in _entries(path)
            if child.name not in _NOT_DESCENDED and not child.is_symlink() and child.is_dir()
        ]  # fmt: skip
        visited += len(level)
        if not level or visited > _MAX_FOLDERS:
            break
    return []


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_plain_file(path: str) -> bytes | None:
    """Bytes of a plain file, at most 16 MiB; links, pipes, devices and folders are refused at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        pieces: list[bytes] = []
        left = _MAX_FILE_BYTES
        while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)
