"""Allocators beside glibc's that are installed here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_FILES = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"),
}
ALLOCATORS: tuple[str, ...] = tuple(_FILES)  # Those that are looked for


def installed_allocators(environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, Path]:
    """Libraries that `LD_PRELOAD` takes, by the allocator's name.

    `LD_LIBRARY_PATH` of the environment comes first, then this Python's own libraries, then the system's below `root`.
    """
    folders = list(_folders(environment, root))
    candidates = {name: [folder / file for folder in folders for file in files] for name, files in _FILES.items()}
    return {
        name: next(filter(Path.is_file, paths)) for name, paths in candidates.items() if any(map(Path.is_file, paths))
    }


def _folders(environment: Mapping[str, str], root: Path) -> Iterable[Path]:
    yield from (Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part)
    yield Path(sys.prefix) / "lib"
    for pattern in ("usr/local/lib", "usr/lib/*-linux-gnu", "usr/lib64", "usr/lib"):
        yield from sorted(root.glob(pattern))
