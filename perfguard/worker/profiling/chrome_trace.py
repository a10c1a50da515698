"""torch's profiler around one stretch of code, and its Chrome trace in a file."""

from __future__ import annotations

import gzip
import shutil
import warnings
from pathlib import Path
from typing import Any

_GZIP_LEVEL = 4
"""Traces are repetitive: the highest level takes three times as long for a few per cent."""
_COPY_BYTES = 1024 * 1024


def profiler(*, memory: bool = False) -> Any:
    """A profiler of this thread's ops with their shapes, as a context manager.

    Python's stacks are left out: they name functions, not lines, and with torch 2.6 on Python 3.13 they crash
    (https://github.com/pytorch/pytorch/issues/144094). Nor does it gather events of several cycles, for which torch
    makes Python objects of all of them when it ends: that took three times as long as the step of a small network.

    Args:
        memory: Also record each allocation.
    """
    import torch

    # torch 2.10 to 2.12 warn of that even where there is one cycle (https://github.com/pytorch/pytorch/issues/180348).
    warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=memory
    )


def export(profiled: Any, path: Path) -> None:
    """Write the Chrome trace of a profiler that has ended; compressed where the name ends in `.gz`.

    Raises:
        OSError: The file cannot be written.
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    profiled.export_chrome_trace(str(plain))
    if not plain.is_file():  # Kineto only logs that it could not write
        raise OSError(f"the trace could not be written to {plain}; is the disk full or the folder read-only?")
    if plain != path:
        with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=_GZIP_LEVEL) as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
        plain.unlink()
