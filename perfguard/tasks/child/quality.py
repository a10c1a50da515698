"""Quality of answers, by kept libraries."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from perfguard.errors import ConfigError
from perfguard.records.tasks import Metric
from perfguard.tasks.child.models import Arrays


def quality_of(metric: Metric, answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    """The metric of answers, `(examples, …)`, against labels or what another computation answers.

    Raises:
        ConfigError: The metric is not for such answers.
    """
    return _METRICS[metric](answers, truth)


def _top1(answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    from sklearn.metrics import accuracy_score

    labels = truth[0].argmax(axis=1) if isinstance(truth, tuple) else truth
    return float(accuracy_score(labels, answers[0].argmax(axis=1)))


def _auc(answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    from sklearn.metrics import roc_auc_score

    if isinstance(truth, tuple):
        raise ConfigError("quality: the metric auc needs labels")
    return float(roc_auc_score(truth, answers[0][:, 1] - answers[0][:, 0]))


def _map(answers: Arrays, truth: npt.NDArray[np.int64] | Arrays) -> float:
    """Mean average precision at overlaps of 0.5 to 0.95; boxes that another computation finds are the truth."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if not isinstance(truth, tuple):
        raise ConfigError("quality: the metric map needs boxes")
    wanted, found = _coco_boxes(truth[0]), _coco_boxes(answers[0])
    if not wanted:
        raise ConfigError("quality: FP32 finds no box, so nothing can agree with it")
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {
            "images": [{"id": number} for number in range(len(truth[0]))],
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


_METRICS: dict[Metric, Callable[[Arrays, npt.NDArray[np.int64] | Arrays], float]] = {
    Metric.TOP1: _top1,
    Metric.AUC: _auc,
    Metric.MAP: _map,
}
