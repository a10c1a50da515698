"""Examples of tasks: what is evaluated, what INT8 is calibrated with, and what a small model is trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import DataPart, DataSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Some examples with their labels."""

    inputs: npt.NDArray[np.float32]  # (examples, …), preprocessed
    labels: npt.NDArray[np.int64] | None  # (examples,); None where there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExamples:
    """The data of a task; no example that is evaluated is in another split."""

    evaluation: Split
    calibration: Split
    training: Split | None
    sha256: str  # Of the evaluation split


def load_examples(source: DataSource, part: DataPart) -> TaskExamples:
    """The data of a task, as many evaluation examples as the part has.

    Raises:
        ConfigError: No such source, or it has fewer examples than the part.
        UsageError: It is not what the task says by its checksum.
    """
    loaders = {"sklearn:digits": _digits, "photos": _photos}
    if source.source not in loaders:
        raise ConfigError(f"data: source {source.source!r} is unknown; choose from {', '.join(sorted(loaders))}")
    found = loaders[source.source]()
    if source.sha256 is not None and found.sha256 != source.sha256:
        raise UsageError(
            f"the data {source.source} has the SHA-256 {found.sha256}, the task wants {source.sha256}; install the "
            "version of the package that the task was made with"
        )
    count, available = source.parts.get(part), len(found.evaluation.inputs)
    if count is None:
        raise ConfigError(
            f"data: the task has no part {part.value!r}; it has {', '.join(p.value for p in source.parts)}"
        )
    if count > available:
        raise ConfigError(f"data: part {part.value} wants {count} examples, {source.source} has {available}")
    labels = found.evaluation.labels
    evaluation = Split(inputs=found.evaluation.inputs[:count], labels=None if labels is None else labels[:count])
    return TaskExamples(
        evaluation=evaluation, calibration=found.calibration, training=found.training, sha256=found.sha256
    )


def _digits() -> TaskExamples:
    """1,797 images: 1,200 to train on, of which 128 calibrate, and 597 to evaluate. By scikit-learn."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    inputs, labels = (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[order].astype(np.int64)
    return _examples(
        evaluation=Split(inputs=inputs[1200:], labels=labels[1200:]),
        calibration=Split(inputs=inputs[:128], labels=None),
        training=Split(inputs=inputs[:1200], labels=labels[:1200]),
    )


_VIEWS = 10
"""Of each photo; the last two calibrate."""


def _photos() -> TaskExamples:
    """Eight photos that come with scikit-image and scikit-learn, each in ten views, 300 × 300, from -1 to 1.

    A view is a part of the photo, drawn by a seed, half of them mirrored. There are no labels.
    """
    from PIL import Image
    from skimage import data
    from sklearn import datasets

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
            resized = np.asarray(Image.fromarray(part).resize((300, 300), Image.Resampling.BILINEAR))
            views[number].append(np.ascontiguousarray(resized.transpose(2, 0, 1) / 127.5 - 1, dtype=np.float32))
    evaluated, calibrating = chain.from_iterable(views[:-2]), chain.from_iterable(views[-2:])
    return _examples(
        evaluation=Split(inputs=np.stack(list(evaluated)), labels=None),
        calibration=Split(inputs=np.stack(list(calibrating)), labels=None),
        training=None,
    )


def _examples(*, evaluation: Split, calibration: Split, training: Split | None) -> TaskExamples:
    found = hashlib.sha256(evaluation.inputs.tobytes())
    if evaluation.labels is not None:
        found.update(evaluation.labels.tobytes())
    return TaskExamples(evaluation=evaluation, calibration=calibration, training=training, sha256=found.hexdigest())
