"""Boxes of detectors: SSD's anchors, decoding, suppression. NumPy alone, so that all backends have the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.float32]

_GRIDS = {1917: (19, 10, 5, 3, 2, 1), 2034: (20, 10, 5, 3, 2, 1)}
"""Cells a side of the feature maps, by how many anchors that makes: of SSD at 300² and at 320²."""
MOST_BOXES = 20  # Of an image
_LEAST_SCORE, _MOST_OVERLAP, _CANDIDATES = 0.1, 0.6, 200
_CODER = np.array([10.0, 10.0, 5.0, 5.0], np.float32)


@lru_cache(maxsize=1)
def ssd_anchors(count: int) -> Boxes:
    """Centres and sizes, `(count, 4)`: y, x, height, width, as shares of the image; 1,917 or 2,034 of them.

    Source: TensorFlow's object detection API, SSD anchor generator: scales 0.2 to 0.95, aspect ratios 1, 2, 1/2, 3, 1/3
    and one between two scales; three boxes a cell on the finest map.
    """
    grids = _GRIDS[count]
    scales = [0.2 + (0.95 - 0.2) * index / (len(grids) - 1) for index in range(len(grids))] + [1.0]
    rows = []
    for index, grid in enumerate(grids):
        sizes = [(scales[index], ratio) for ratio in (1.0, 2.0, 0.5, 3.0, 0.3333)]
        sizes.append((math.sqrt(scales[index] * scales[index + 1]), 1.0))
        if index == 0:
            sizes = [(0.1, 1.0), (scales[0], 2.0), (scales[0], 0.5)]
        for y in range(grid):
            for x in range(grid):
                rows += [
                    ((y + 0.5) / grid, (x + 0.5) / grid, scale / math.sqrt(ratio), scale * math.sqrt(ratio))
                    for scale, ratio in sizes
                ]
    return np.array(rows, np.float32)


def detections(encodings: Boxes, logits: Boxes) -> Boxes:
    """Outputs of an SSD for a batch, `(batch, anchors, 4)` and `(batch, anchors, classes)`, to boxes `(batch, 20, 6)`.

    A box is top, left, bottom, right as shares of the image, class and score; class 0 is the background. Rows without
    a box have a score of 0.
    """
    anchors = ssd_anchors(encodings.shape[1])
    return np.stack(
        [
            _of_image(logits[image, :, 1:], lambda chosen, own=own: _decoded(own[chosen], anchors[chosen]))  # type: ignore[misc]
            for image, own in enumerate(encodings)
        ]
    )


def suppressed(boxes: Boxes, logits: Boxes) -> Boxes:
    """Boxes and logits without a background, as `detections` gives them; classes count from 1."""
    return np.stack([_of_image(own, boxes[image].__getitem__) for image, own in enumerate(logits)])


def _of_image(logits: Boxes, boxes_of: Callable[[npt.NDArray[np.int64]], Boxes]) -> Boxes:
    """The best boxes of an image; of those that overlap in one class, the best one. Only candidates' boxes are made."""
    found = np.zeros((MOST_BOXES, 6), np.float32)
    scores = 1 / (1 + np.exp(np.clip(-logits.astype(np.float32), -80, 80)))
    classes, best = scores.argmax(axis=1), scores.max(axis=1)
    chosen = np.argsort(-best, kind="stable")[:_CANDIDATES]
    chosen = chosen[best[chosen] >= _LEAST_SCORE]
    boxes = boxes_of(chosen)
    kept: list[int] = []
    for index in range(len(chosen)):
        rivals = [other for other in kept if classes[chosen[other]] == classes[chosen[index]]]
        if len(kept) < MOST_BOXES and (not rivals or overlaps(boxes[index], boxes[rivals]).max() <= _MOST_OVERLAP):
            kept.append(index)
    for row, index in enumerate(kept):
        found[row] = (*boxes[index], classes[chosen[index]] + 1, best[chosen[index]])
    return found


def _decoded(encodings: Boxes, anchors: Boxes) -> Boxes:
    """Offsets to corners. Source: Faster R-CNN's box coder, with TensorFlow's scale factors 10, 10, 5, 5."""
    y, x, height, width = (encodings / _CODER).T
    centre_y, centre_x = y * anchors[:, 2] + anchors[:, 0], x * anchors[:, 3] + anchors[:, 1]
    half_h, half_w = np.exp(height) * anchors[:, 2] / 2, np.exp(width) * anchors[:, 3] / 2
    corners = np.stack([centre_y - half_h, centre_x - half_w, centre_y + half_h, centre_x + half_w], axis=1)
    return np.clip(corners, 0, 1).astype(np.float32)


def overlaps(box: Boxes, others: Boxes) -> Boxes:
    """Intersection over union of a box `(4,)` with others `(boxes, 4)`."""
    top_left, bottom_right = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(bottom_right - top_left, 0, None), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0).astype(np.float32)
