"""Answers to queries drawn at random while speed was measured: what answers fast must answer as in accuracy mode.

Source: MLPerf inference, compliance, TEST01.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perfguard.errors import StoreError
from perfguard.tasks.integer_arrays import read_integers
from perfguard.tasks.loadgen_logs import LoggedAnswer
from perfguard.tasks.scores import LEAST_EQUAL_DB, snr_db

SAMPLED = 32  # Answers that are kept of a measurement of speed


def are_the_same(sampled: Sequence[LoggedAnswer], judged: Mapping[int, bytes]) -> bool:
    """Whether answers are those of accuracy mode, by example, but for rounding; over all of them together."""
    wanted = [judged.get(answer.sample, b"") for answer in sampled]
    sizes = [len(data) for data in wanted]
    if not all(sizes) or [len(answer.data) for answer in sampled] != sizes:
        return False
    found, right = b"".join(answer.data for answer in sampled), b"".join(wanted)
    if any(size % 4 for size in sizes):  # no float32, which nothing rounds
        return found == right
    level = snr_db((np.frombuffer(found, np.float32),), (np.frombuffer(right, np.float32),))
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
    samples, sizes, data = read_integers(path, "samples", "sizes", "data")
    is_whole = data.dtype == np.uint8 and ((sizes >= 0) & (sizes <= len(data))).all() and sizes.sum() == len(data)
    if not is_whole or len(samples) != len(sizes):
        raise StoreError(f"{path}: each answer has an example and a size")
    ends = np.cumsum(sizes).tolist()
    return tuple(
        LoggedAnswer(sample=sample, data=data[end - size : end].tobytes())
        for sample, size, end in zip(samples.tolist(), sizes.tolist(), ends, strict=True)
    )
