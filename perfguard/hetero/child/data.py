"""Examples as files that every worker maps: dense rows or CSR, one class each or several labels.

Chunks come from a generator or a loader and are written one after the other, so that no more than a chunk is held in
memory. Workers map the files; pages that are in use are in memory once for all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from perfguard.errors import HostUnfitError, InterruptedRunError, UsageError
from perfguard.hetero.child.generators import generated
from perfguard.hetero.child.loaders import bundled, files_chunks
from perfguard.hetero.child.rows import Chunk, Csr
from perfguard.hetero.planning import is_file
from perfguard.hetero.shapes import SHAPES, bytes_of
from perfguard.records.training import DataConfig

Inputs = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Dense rows [n, features]; or columns [nnz], start of each row [n] and values [nnz] of sparse ones."""

_INFO = "examples.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the examples are like."""

    examples: int
    features: int
    classes: int
    is_sparse: bool
    is_multilabel: bool


@dataclass(frozen=True, slots=True)
class Examples:
    """All examples, mapped from files.

    Features are `x` [n, features] float32, or `starts` [n + 1] int64, `columns` [nnz] int64 and `values` [nnz] float32.
    Labels are `y` [n] int64, or `label_starts` [n + 1] int64 and `labels` [any] int64.
    """

    shape: Shape
    arrays: dict[str, torch.Tensor]

    def batch(self, start: int, stop: int, every: int = 1) -> tuple[Inputs, torch.Tensor]:
        """Inputs and targets of rows `start` to `stop`, or of every n-th of them.

        Targets are classes [n] int64, or 0 and 1 for each label [n, classes] float32.
        """
        if self.shape.is_sparse:
            inputs: Inputs = self._csr_rows(start, stop, every)
        else:
            inputs = self.arrays["x"][start:stop:every]
        if not self.shape.is_multilabel:
            return inputs, self.arrays["y"][start:stop:every]
        starts, labels = self.arrays["label_starts"], self.arrays["labels"]
        rows = range(start, stop, every)
        targets = torch.zeros(len(rows), self.shape.classes)
        first = starts[start:stop:every]
        counts = starts[start + 1 : stop + 1][::every] - first
        row_of = torch.repeat_interleave(torch.arange(len(rows)), counts)
        within = torch.arange(len(row_of)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        targets[row_of, labels[first[row_of] + within]] = 1.0
        return inputs, targets

    def _csr_rows(self, start: int, stop: int, every: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        starts, columns, values = (self.arrays[name] for name in ("starts", "columns", "values"))
        if every == 1:
            low, high = int(starts[start]), int(starts[stop])
            return columns[low:high], starts[start:stop] - low, values[low:high]
        first = starts[start:stop:every]
        counts = starts[start + 1 : stop + 1][::every] - first
        offsets = counts.cumsum(0) - counts
        at = torch.repeat_interleave(first - offsets, counts) + torch.arange(int(counts.sum()))
        return columns[at], offsets, values[at]


def prepare(config: DataConfig, folder: Path, wants_stop: Callable[[], bool] = lambda: False) -> Path:
    """The folder with the examples of a configuration, which is made where it is not there.

    Raises:
        UsageError: The data cannot be used.
        HostUnfitError: The files cannot be written, or are larger than what is free.
        InterruptedRunError: `wants_stop` said so.
    """
    place = folder / _key(config)
    if (place / _INFO).is_file():
        return place
    scratch = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        scratch.mkdir(parents=True)
        _require_room(config, scratch)
        _write(_until(wants_stop, _chunks(config)), scratch, config)
        scratch.rename(place)
    except OSError as error:
        if (place / _INFO).is_file():  # another run was faster
            return place
        raise HostUnfitError(
            f"examples cannot be written to {folder}: {error.strerror or error}; free some space"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place


def _require_room(config: DataConfig, folder: Path) -> None:
    if config.source in SHAPES and config.examples is not None:
        needed, free = bytes_of(SHAPES[config.source], config.examples), shutil.disk_usage(folder).free
        if needed > free:
            raise HostUnfitError(
                f"{config.examples:,} examples of {config.source} take about {needed / 1e9:,.1f} GB, and "
                f"{folder.parent} has {free / 1e9:,.1f} GB left; train on fewer: --examples"
            )


def _until(wants_stop: Callable[[], bool], chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        if wants_stop():
            raise InterruptedRunError("interrupted while the examples were written; nothing was trained")
        yield chunk


def open_examples(place: Path) -> Examples:
    """The examples in a folder."""
    info = json.loads((place / _INFO).read_text(encoding="utf-8"))
    arrays = {}
    for name, (dtype, shape) in info["arrays"].items():
        path = place / f"{name}.bin"
        # Copy-on-write: nothing is ever written, but torch does not take arrays that cannot be.
        array = np.memmap(path, dtype=dtype, mode="c", shape=tuple(shape)) if np.prod(shape) else np.zeros(shape, dtype)
        arrays[name] = torch.from_numpy(np.asarray(array))
    return Examples(Shape(**info["shape"]), arrays)


def _key(config: DataConfig) -> str:
    described: dict[str, Any] = msgspec.structs.asdict(config)
    if is_file(config.source):
        try:
            stat = Path(config.source).stat()
        except OSError as error:
            raise UsageError(f"{config.source} cannot be read: {error.strerror}") from error
        if Path(config.source).is_dir():
            raise UsageError(f"data.source = {config.source!r} is a folder; name a file in it")
        described |= {"size": stat.st_size, "changed": stat.st_mtime_ns}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]
    return f"{Path(config.source).name.replace(':', '-')}-{digest}"


def _chunks(config: DataConfig) -> Iterable[Chunk]:
    if config.source in SHAPES:
        return generated(SHAPES[config.source], examples=config.examples, seed=config.seed)
    if config.source.startswith("sklearn:"):
        return bundled(config)
    if is_file(config.source):
        return files_chunks(config)
    raise UsageError(
        f"data {config.source!r} is unknown; give a file, sklearn:digits, or one of the shapes {', '.join(SHAPES)}"
    )


def _write(chunks: Iterable[Chunk], folder: Path, config: DataConfig) -> None:
    writer = _Writer(folder)
    for chunk in chunks:
        writer.add(chunk)
    writer.finish(config)


class _Writer:
    """Appends chunks to one file an array."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lengths: dict[str, int] = {}
        self._dtypes: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._examples = self._features = self._classes = 0
        self._last: Chunk | None = None

    def add(self, chunk: Chunk) -> None:
        is_first, self._last = self._last is None, chunk
        self._examples += chunk.rows
        self._features, self._classes = max(self._features, chunk.features), max(self._classes, chunk.classes)
        if isinstance(chunk.x, Csr):
            self._add_csr(("starts", "columns", "values"), chunk.x, is_first=is_first)
        else:
            self._append("x", np.ascontiguousarray(chunk.x, dtype=np.float32))
        if isinstance(chunk.y, Csr):
            self._add_csr(("label_starts", "labels", None), chunk.y, is_first=is_first)
        else:
            self._append("y", np.asarray(chunk.y, dtype=np.int64))

    def _add_csr(self, names: tuple[str, str, str | None], rows: Csr, *, is_first: bool) -> None:
        starts, columns, values = names
        before = self._lengths.get(columns, 0)
        all_starts = np.asarray(rows.starts, dtype=np.int64) + before
        self._append(starts, all_starts if is_first else all_starts[1:])
        self._append(columns, np.asarray(rows.columns, dtype=np.int64))
        if values is not None:
            self._append(values, np.asarray(rows.values, dtype=np.float32))

    def _append(self, name: str, array: NDArray[Any]) -> None:
        with (self._folder / f"{name}.bin").open("ab") as file:
            file.write(array.tobytes())
        self._lengths[name] = self._lengths.get(name, 0) + len(array)
        self._dtypes[name] = (array.dtype.str, array.shape[1:])

    def finish(self, config: DataConfig) -> None:
        if self._last is None or self._examples == 0:
            raise UsageError("there is no example to train on: the data is empty")
        if config.examples is not None and self._examples < config.examples:
            raise UsageError(
                f"data {config.source!r} has {self._examples:,} examples, fewer than the {config.examples:,} of "
                f"data.examples; ask for at most {self._examples:,}"
            )
        shape = Shape(
            examples=self._examples,
            features=self._features,
            classes=self._classes,
            is_sparse=isinstance(self._last.x, Csr),
            is_multilabel=isinstance(self._last.y, Csr),
        )
        arrays = {name: (dtype, (self._lengths[name], *rest)) for name, (dtype, rest) in self._dtypes.items()}
        text = json.dumps({"shape": asdict(shape), "arrays": arrays})
        (self._folder / _INFO).write_text(text, encoding="utf-8")
