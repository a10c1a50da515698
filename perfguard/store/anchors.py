"""Anchors: `anchor/` in `baselines/<machine_id>/<suite>/`, a stored baseline that `baseline update` leaves alone.

Same files, same loader (`BaselineStore.load`); what an anchor adds is only that it stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from perfguard.errors import StoreError, UsageError

ANCHOR = "anchor"
"""Name of the folder, inside that of the baseline."""

FILES = ("timings.json", "noise.json", "fingerprint.json", "info.json")
"""What a baseline consists of."""

OPTIONAL_FILES = ("census.json",)
"""What a baseline has besides where it could be counted."""


def anchor_place(place: Path) -> Path:
    """Directory of the anchor that belongs to the baseline at `place`."""
    return place / ANCHOR


def has_anchor(place: Path) -> bool:
    """Whether the baseline at `place` has an anchor; a damaged one is one, too, and is said when it is read."""
    return os.path.lexists(anchor_place(place))


def files_of(place: Path) -> dict[str, bytes]:
    """The files of a stored baseline as they are.

    Raises:
        StoreError: One is missing or cannot be read.
    """
    try:
        counted = [name for name in OPTIONAL_FILES if (place / name).is_file()]
        return {name: (place / name).read_bytes() for name in (*FILES, *counted)}
    except OSError as error:
        raise StoreError(
            f"{error.filename} cannot be read ({error.strerror}); restore it from git, or run "
            "`perfguard baseline update`"
        ) from error


def freeze(files: Mapping[str, bytes], place: Path, *, replace: bool) -> Path:
    """Write an anchor beside the baseline at `place`, in one step; gives its directory.

    Raises:
        UsageError: There is one, and it is not to be replaced.
        StoreError: It cannot be written.
    """
    destination = anchor_place(place)
    if has_anchor(place) and not replace:
        raise UsageError(
            f"{destination} exists: an anchor is only worth something while it stays; use --replace to accept what "
            "has been added since, or --remove"
        )
    new, old = place / f".{ANCHOR}.{os.getpid()}.new", place / f".{ANCHOR}.{os.getpid()}.old"
    try:
        new.mkdir(parents=True)
        for name in (*FILES, *(name for name in OPTIONAL_FILES if name in files)):
            (new / name).write_bytes(files[name])
        if has_anchor(place):
            destination.rename(old)
        new.rename(destination)
    except OSError as error:
        raise StoreError(f"{destination} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if old.is_dir() and not destination.exists():
            old.rename(destination)
        shutil.rmtree(old, ignore_errors=True)
    return destination


def remove(place: Path) -> Path:
    """Remove the anchor of the baseline at `place`; gives its directory.

    Raises:
        StoreError: There is none, or it cannot be removed.
    """
    destination = anchor_place(place)
    if not has_anchor(place):
        raise StoreError(f"there is no anchor at {destination}")
    try:
        shutil.rmtree(destination)
    except OSError as error:
        raise StoreError(f"{destination} cannot be removed: {error.strerror or error}") from error
    return destination
