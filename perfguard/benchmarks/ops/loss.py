"""Classification losses."""

from __future__ import annotations

import torch
from torch.nn import functional

from perfguard.benchmarks.api import Timed
from perfguard.benchmarks.networks.retinanet import sigmoid_focal_loss
from perfguard.benchmarks.ops.phases import phased
from perfguard.benchmarks.shared import dtype_of, integers, leaf


def cross_entropy(*, rows: int, classes: int, dtype: str, phase: str) -> Timed:
    """Mean cross-entropy of (rows, classes) logits against class labels."""
    logits, labels = leaf(rows, classes, dtype=dtype), integers(classes, rows)
    return phased(lambda: functional.cross_entropy(logits, labels), [logits], phase=phase)


def focal_loss(*, anchors: int, classes: int, dtype: str, phase: str, positives: float = 0.002) -> Timed:
    """RetinaNet's sigmoid focal loss on (anchors, classes) logits; `positives` is the share of foreground.

    12,276 anchors are a 256x256 image; 91 classes are COCO, 264 the OpenImages subset of MLPerf.
    """
    logits = leaf(anchors, classes, dtype=dtype)
    targets = torch.zeros(anchors, classes, dtype=dtype_of(dtype))
    foreground = integers(anchors, max(1, round(anchors * positives)))
    targets[foreground, integers(classes, foreground.numel())] = 1.0
    return phased(lambda: sigmoid_focal_loss(logits, targets), [logits], phase=phase)
