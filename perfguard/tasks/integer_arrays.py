"""Reads arrays of whole numbers from NumPy's packed files, whoever wrote them."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfguard.errors import StoreError

_MOST_BYTES = 2**30  # Of all arrays, unpacked
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    MemoryError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
)


def read_integers(path: Path, *names: str) -> tuple[npt.NDArray[Any], ...]:
    """Arrays of one axis, by name.

    Raises:
        StoreError: The file cannot be read, is too large, or lacks one of them.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            if sum(entry.file_size for entry in found.zip.infolist()) > _MOST_BYTES:
                raise ValueError("too large")
            arrays = tuple(found[name] for name in names)
    except _BROKEN as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in arrays):
        raise StoreError(f"{path}: {', '.join(names)} are whole numbers, in one row each")
    return arrays
