"""Tarballs of machines, unpacked without trust: nothing is written or linked outside the target."""

# ruff: noqa: PTH117, PTH118
# os.path throughout: Path.resolve raises on loops of links, and thousands of paths are faster as strings.
from __future__ import annotations

import lzma
import os
import re
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath

from perfguard.errors import FingerprintError

_MAX_MEMBERS = 400_000
_MAX_TOTAL_BYTES = 512 << 20
_MAX_FILE_BYTES = 16 << 20
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError, OverflowError)
_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_UNUSED = re.compile(
    r"/sys/devices/pci|/sys/bus/pci|/sys/class/net/|/sys/devices/system/(memory|machinecheck)/|/proc/irq/"
    r"|/node\d+/memory\d+/|/(power|hugepages|cpuidle|hotplug|thermal_throttle|driver|firmware_node)/"
)
"""Most of a tree, and of no use here: unpacking it would take minutes."""


def is_archive(path: Path) -> bool:
    """Whether the name is one of a tarball."""
    return path.name.endswith(_SUFFIXES)


def extract(archive: Path, target: Path) -> None:
    """Unpack a tarball's plain files, folders and inner links; devices, hard links and escapes are left out.

    Args:
        archive: The tarball, plain or compressed by gzip, bzip2 or xz.
        target: An empty folder.

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
    made: set[Path] = set()
    total = 0
    for number, member in enumerate(tar):
        if number >= _MAX_MEMBERS or total > _MAX_TOTAL_BYTES:
            raise FingerprintError(f"{tar.name!r} is too large for a recorded machine.")
        path = _safe_path(target, member.name)
        if path is None or _UNUSED.search(f"/{member.name}/"):
            continue
        if member.isdir():
            _make_folder(path, made)
        elif member.issym():
            links.append((path, member.linkname))
        elif member.isreg() and member.size <= _MAX_FILE_BYTES:
            total += member.size
            content = tar.extractfile(member)
            _make_folder(path.parent, made)
            if content is not None and not path.exists():
                path.write_bytes(content.read())
    return links


def _make_folder(path: Path, made: set[Path]) -> None:
    if path not in made:
        path.mkdir(parents=True, exist_ok=True)
        made.add(path)


def _safe_path(target: Path, name: str) -> Path | None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name or not pure.parts:
        return None
    return target / pure


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
