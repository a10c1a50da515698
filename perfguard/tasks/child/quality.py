"""Quality of answers, by kept libraries."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from perfguard.errors import ConfigError
from perfguard.records.tasks import Metric, QualityKind, QualityTarget
from perfguard.tasks.child.postprocessing import Arrays

Truth = npt.NDArray[Any] | Arrays
"""Labels, `(examples, …)`, or what another computation answers."""


def quality_of(metric: Metric, answers: Arrays, truth: Truth) -> float:
    """The metric of answers, `(examples, …)`.

    Raises:
        ConfigError: The metric is not for such answers.
    """
    return _METRICS[metric](answers, truth)


def measured_quality(
    target: QualityTarget, answers: Arrays, labels: npt.NDArray[Any] | None, plain: Callable[[], Arrays]
) -> float:
    """The quality of answers by what a task measures it against: labels, or `plain`, what PyTorch answers in FP32.

    Raises:
        ConfigError: There are no labels, or the metric is not for such answers.
    """
    if target.kind is not QualityKind.LABELLED:
        return quality_of(target.metric, answers, plain())
    if labels is None:
        raise ConfigError(f"quality: kind is {target.kind.value!r}, and the data has no labels")
    return quality_of(target.metric, answers, labels)


def _top1(answers: Arrays, truth: Truth) -> float:
    labels = truth[0].argmax(axis=1) if isinstance(truth, tuple) else truth
    return float(np.mean(labels == answers[0].argmax(axis=1)))


def _auc(answers: Arrays, truth: Truth) -> float:
    from sklearn.metrics import roc_auc_score

    if isinstance(truth, tuple):
        raise ConfigError("quality: the metric auc needs labels")
    return float(roc_auc_score(truth, answers[0][:, 1] - answers[0][:, 0]))


def _map(answers: Arrays, truth: Truth) -> float:
    """Mean average precision at overlaps of 0.5 to 0.95; boxes that another computation finds are the truth."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    right = truth[0] if isinstance(truth, tuple) else truth
    if not answers[0].ndim == right.ndim == 3:
        raise ConfigError("quality: the metric map needs boxes, (images, boxes, 6)")
    wanted, found = _coco_boxes(right), _coco_boxes(answers[0])
    if not wanted:
        raise ConfigError("quality: there is no box to find")
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {
            "images": [{"id": number} for number in range(len(right))],
            "categories": [{"id": number} for number in sorted({box["category_id"] for box in wanted})],
            "annotations": [{**box, "id": number, "iscrowd": 0} for number, box in enumerate(wanted, start=1)],
        }
        known.createIndex()
        evaluation = COCOeval(known, known.loadRes(found) if found else COCO(), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return max(0.0, float(evaluation.stats[0]))


def _coco_boxes(boxes: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
    """Boxes `(images, boxes, 6)` as COCO has them, in pixels of an image of 300²."""
    found = []
    for image, rows in enumerate(boxes):
        for top, left, bottom, right, kind, score in rows[rows[:, 5] > 0].tolist():
            size = [300 * left, 300 * top, 300 * (right - left), 300 * (bottom - top)]
            found.append(
                {"image_id": image, "category_id": int(kind), "bbox": size, "area": size[2] * size[3], "score": score}
            )
    return found


def _miou(answers: Arrays, truth: Truth) -> float:
    """Jaccard index of each class over the cells of all images together, mean over the classes that are there.

    Answers `(images, height, width)` are drawn larger where labels are, as DeepLab does. Labels from 255 do not count.
    """
    import torch
    from torchmetrics.functional.classification import multiclass_jaccard_index

    labels = truth[0].astype(np.int64) if isinstance(truth, tuple) else truth
    if answers[0].ndim != 3 or labels.ndim != 3:
        raise ConfigError("quality: the metric miou needs segments, (images, height, width)")
    found = answers[0].astype(np.int64)
    for axis in (1, 2):
        chosen = np.linspace(0, found.shape[axis] - 1, labels.shape[axis]).round().astype(np.int64)
        found = found.take(chosen, axis=axis)
    counted = labels < _IGNORED
    classes = int(max(found.max(), labels[counted].max(initial=0))) + 1
    value = multiclass_jaccard_index(
        torch.from_numpy(found[counted]),
        torch.from_numpy(labels[counted]),
        num_classes=max(2, classes),
        average="macro",
    )
    return float(value)


_IGNORED = 255  # Label of what is in no class


def _f1(answers: Arrays, truth: Truth) -> float:
    """SQuAD's F1 over the positions of tokens; of several right spans, `(examples, spans, 2)`, the nearest counts."""
    from torchmetrics.functional.text import squad

    right = truth[0].astype(np.int64) if isinstance(truth, tuple) else truth
    if answers[0].ndim != 2 or right.shape[-1] != 2:
        raise ConfigError("quality: the metric f1 needs spans, (examples, 2)")
    right = right.reshape(len(right), -1, 2)
    found: list[dict[str, Any]] = [
        {"prediction_text": _positions(*span), "id": str(number)} for number, span in enumerate(answers[0])
    ]
    wanted: list[dict[str, Any]] = [
        {
            "answers": {"answer_start": [0] * len(spans), "text": [_positions(*span) for span in spans]},
            "id": str(number),
        }
        for number, spans in enumerate(right)
    ]
    return float(squad(found, wanted)["f1"]) / 100


def _positions(first: float, last: float) -> str:
    """`17 18 19` for the tokens 17 to 19."""
    return " ".join(str(number) for number in range(int(first), int(last) + 1))


_METRICS: dict[Metric, Callable[[Arrays, Truth], float]] = {
    Metric.TOP1: _top1,
    Metric.AUC: _auc,
    Metric.F1: _f1,
    Metric.MAP: _map,
    Metric.MIOU: _miou,
}
