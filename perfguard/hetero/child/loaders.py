"""Real data: scikit-learn's bundled sets, and files in LIBSVM's and the extreme-classification repository's format.

Files are read by scikit-learn in pieces of bounded size. A line that it cannot read is looked for and named.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perfguard.errors import UsageError
from perfguard.hetero.child.rows import Chunk, Csr
from perfguard.records.training import DataConfig

_PIECE_BYTES = 16 * 1024 * 1024
_HEADER = re.compile(rb"^(\d+) (\d+) (\d+)\s*$")
_LINE = re.compile(rb"^\s*(?:[-+\d.eE]+(?:,\d+)*)?(?:\s+\d+:[-+\d.eEnaif]+)*\s*(?:#.*)?$")


def bundled(config: DataConfig) -> Iterator[Chunk]:
    """A classification set that comes with scikit-learn, features standardized, rows in an order drawn by the seed.

    Raises:
        UsageError: There is none of this name, or scikit-learn is not installed.
    """
    datasets = _sklearn_datasets()
    name = config.source.removeprefix("sklearn:")
    sets = {"digits": datasets.load_digits, "breast_cancer": datasets.load_breast_cancer,
            "wine": datasets.load_wine, "iris": datasets.load_iris}  # fmt: skip
    if name not in sets:
        raise UsageError(
            f"data {config.source!r} is unknown; scikit-learn brings {', '.join(f'sklearn:{each}' for each in sets)}"
        )
    x, y = sets[name](return_X_y=True)
    order = np.random.default_rng(config.seed).permutation(len(x))[: config.examples]
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    yield Chunk(x=x[order].astype(np.float32), y=y[order], features=x.shape[1], classes=int(y.max()) + 1)


def files_chunks(config: DataConfig) -> Iterator[Chunk]:
    """The examples of a file, piece by piece.

    Raises:
        UsageError: The file is empty, a line is corrupt, or a label or feature is out of range.
    """
    path = Path(config.source)
    left = config.examples
    with path.open("rb") as file:
        header = _HEADER.match(file.readline(200))
        if header is None:
            file.seek(0)
            reader: _Reader = _Libsvm(config, path)
        else:
            reader = _Extreme(config, path, tuple(map(int, header.groups())))
        line = 1 if header is None else 2
        while left is None or left > 0:
            piece = file.read(_PIECE_BYTES) + file.readline()
            if not piece:
                break
            chunk = reader.read(piece, line, left)
            line += piece.count(b"\n")
            if chunk.rows:
                left = None if left is None else left - chunk.rows
                yield chunk
    reader.finish()


class _Reader:
    is_multilabel = False

    def __init__(self, config: DataConfig, path: Path) -> None:
        self.config, self.path = config, path

    def read(self, piece: bytes, line: int, most: int | None) -> Chunk:
        """The examples of some lines, the first of which has this number."""
        if most is not None:
            piece = b"".join(piece.splitlines(keepends=True)[:most])
        try:
            x, y = self._loaded(piece)
        except (ValueError, OverflowError) as error:
            raise self._problem(piece, line, error) from error
        numbers = [number for number, text in enumerate(piece.split(b"\n"), line) if text.split(b"#", 1)[0].strip()]

        def at(row: int) -> str:
            return f"{self.path}:{numbers[row]}"

        if x.nnz and not np.isfinite(x.data).all():
            place = at(_row_of(x.indptr, int(np.argmax(~np.isfinite(x.data)))))
            raise UsageError(f"{place}: a feature is not a finite number; correct or remove the line")
        return self.chunk(x, y, at)

    def _loaded(self, text: bytes) -> Any:
        return _sklearn_datasets().load_svmlight_file(
            io.BytesIO(text), dtype=np.float32, multilabel=self.is_multilabel, zero_based=True
        )

    def chunk(self, x: Any, y: Any, at: _Places) -> Chunk:
        """The examples, checked."""
        raise NotImplementedError

    def finish(self) -> None:
        """All lines were read."""

    def _problem(self, piece: bytes, line: int, error: Exception) -> UsageError:
        for number, text in enumerate(piece.split(b"\n"), line):
            if not _LINE.match(text):
                return _no_line(self.path, number, text)
            try:
                self._loaded(text)
            except (ValueError, OverflowError) as own:
                return UsageError(f"{self.path}:{number}: the line cannot be read: {own}; correct or remove it")
        last = line + piece.count(b"\n")
        return UsageError(f"{self.path}: lines {line} to {last} cannot be read: {error}")

    @staticmethod
    def _require_below(values: Any, starts: Any, limit: int | None, what: str, at: _Places) -> None:
        """Raise UsageError where one of the values, row by row, is not below the limit."""
        if limit is not None and len(values) and (most := int(values.max())) >= limit:
            place = at(_row_of(starts, int(np.argmax(values))))
            raise UsageError(f"{place}: {what} {most} is out of range: {what}s are numbered from 0 to {limit - 1}")


_Places = Callable[[int], str]
"""From the number of an example in its piece to `FILE:LINE`."""


def _row_of(starts: Any, index: int) -> int:
    return int(np.searchsorted(starts, index, side="right")) - 1


def _no_line(path: Path, number: int, text: bytes) -> UsageError:
    if b"\0" in text:
        return UsageError(f"{path}:{number}: binary data; give a text file in LIBSVM's format")
    shown = text[:60].decode(errors="replace").rstrip()
    return UsageError(f"{path}:{number}: not a line of this format: {shown!r}; correct or remove it")


class _Libsvm(_Reader):
    """`label index:value …`; indices from 1 on. Labels are classes by their order: -1 and 1 become 0 and 1."""

    def __init__(self, config: DataConfig, path: Path) -> None:
        super().__init__(config, path)
        self._classes = _classes_of(path)
        if config.classes is not None and len(self._classes) > config.classes:
            raise UsageError(f"{path} has {len(self._classes)} classes, but classes = {config.classes}")

    def chunk(self, x: Any, y: Any, at: _Places) -> Chunk:
        if x.nnz and int(x.indices.min()) == 0:
            place = at(_row_of(x.indptr, int(np.argmin(x.indices))))
            raise UsageError(f"{place}: a feature has the index 0; LIBSVM's files number features from 1 on")
        most = int(x.indices.max()) if x.nnz else 0
        self._require_below(x.indices - 1, x.indptr, self.config.features, "feature", at)
        labels = np.searchsorted(self._classes, y)
        features = self.config.features or most
        rows = Csr(x.indptr, x.indices - 1, x.data)
        return Chunk(x=rows, y=labels, features=features, classes=self.config.classes or max(2, len(self._classes)))


class _Extreme(_Reader):
    """A line `examples features labels`, then `label,label index:value …`; all numbered from 0 on."""

    is_multilabel = True

    def __init__(self, config: DataConfig, path: Path, header: tuple[int, ...]) -> None:
        super().__init__(config, path)
        self._examples, self._features, self._labels = header
        self._seen = 0

    def chunk(self, x: Any, y: Any, at: _Places) -> Chunk:
        self._require_below(x.indices, x.indptr, self._features, "feature", at)
        counts = np.array([len(labels) for labels in y], dtype=np.int64)
        labels = np.fromiter((label for each in y for label in each), dtype=np.int64, count=int(counts.sum()))
        starts = np.concatenate(([0], np.cumsum(counts)))
        self._require_below(labels, starts, self._labels, "label", at)
        self._seen += len(y)
        rows = Csr(x.indptr, x.indices, x.data)
        return Chunk(x=rows, y=Csr(starts, labels, np.empty(0)), features=self._features, classes=self._labels)

    def finish(self) -> None:
        if self.config.examples is None and self._seen != self._examples:
            raise UsageError(f"{self.path} says that it has {self._examples} examples, but holds {self._seen}")


def _classes_of(path: Path) -> Any:
    """The labels of a LIBSVM file in order, read line by line."""
    found: set[float] = set()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.split(b"#", 1)[0].split(None, 1)
            if not text:
                continue
            try:
                found.add(float(text[0]))
            except ValueError:
                raise _no_line(path, number, line) from None
    if not found:
        raise UsageError(f"{path} holds no example")
    return np.array(sorted(found))


def _sklearn_datasets() -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise UsageError("reading data needs scikit-learn; install perfguard[hetero]") from error
    return datasets
