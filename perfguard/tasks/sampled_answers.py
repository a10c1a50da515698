"""Answers to queries drawn at random while speed was measured: what answers fast must answer as in accuracy mode.

Source: MLPerf inference, compliance, TEST01.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perfguard.errors import StoreError
from perfguard.tasks.loadgen_logs import LoggedAnswer
from perfguard.tasks.scores import LEAST_EQUAL_DB, snr_db

SAMPLED = 32  # Answers that are kept of a measurement of speed
_MOST_BYTES = 2**30  # Of all answers, unpacked


def are_the_same(sampled: Sequence[LoggedAnswer], judged: Mapping[int, bytes]) -> bool:
    """Whether answers are those of accuracy mode, by example, but for rounding; over all of them together."""
    wanted = [judged.get(answer.sample, b"") for answer in sampled]
    if any(len(answer.data) != len(data) or len(data) % 4 for answer, data in zip(sampled, wanted, strict=True)):
        return False
    found = (np.frombuffer(b"".join(answer.data for answer in sampled), np.float32),)
    level = snr_db(found, (np.frombuffer(b"".join(wanted), np.float32),))
    return level is None or level >= LEAST_EQUAL_DB


def write_sample(path: Path, answers: Sequence[LoggedAnswer]) -> None:
    """Store answers in NumPy's format."""
    np.savez_compressed(
        path,
        samples=np.array([answer.sample for answer in answers], np.int64),
        sizes=np.array([len(answer.data) for answer in answers], np.int64),
        data=np.frombuffer(b"".join(answer.data for answer in answers), np.uint8),
    )


def read_sample(path: Path) -> tuple[LoggedAnswer, ...]:
    """What `write_sample` stored.

    Raises:
        StoreError: The file cannot be read, or holds something else.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if sum(entry.file_size for entry in stored.zip.infolist()) > _MOST_BYTES:
                raise ValueError("too large")
            samples, sizes, data = (stored[name] for name in ("samples", "sizes", "data"))
        if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (samples, sizes, data)):
            raise ValueError("answers are bytes, their examples and sizes whole numbers")
        if len(samples) != len(sizes) or data.dtype != np.uint8 or (sizes < 0).any() or sizes.sum() != len(data):
            raise ValueError("each answer has an example and a size")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError, AttributeError, MemoryError) as e:
        raise StoreError(f"{path}: not a sample of answers: {e}") from e
    ends = np.cumsum(sizes).tolist()
    return tuple(
        LoggedAnswer(sample=sample, data=data[end - size : end].tobytes())
        for sample, size, end in zip(samples.tolist(), sizes.tolist(), ends, strict=True)
    )
