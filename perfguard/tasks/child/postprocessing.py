"""Answers of outputs: boxes, segments, spans. NumPy alone, so that all backends have the same; it is timed, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfguard.tasks.child.detection import detections, suppressed
from perfguard.tasks.child.examples import Inputs

Arrays = tuple[npt.NDArray[np.float32], ...]
"""Outputs of a model for a batch, each of shape `(batch, …)`."""
Postprocess = Callable[[Arrays, Inputs], Arrays]
"""From outputs and the inputs that they are of to answers."""

LONGEST_SPAN = 30  # Tokens


def _of_ssd(outputs: Arrays, _: Inputs) -> Arrays:
    encodings, logits = outputs
    return (detections(encodings, logits),)


def _boxes(outputs: Arrays, _: Inputs) -> Arrays:
    boxes, logits = outputs
    return (suppressed(boxes, logits),)


def _segments(outputs: Arrays, _: Inputs) -> Arrays:
    """Logits `(batch, classes, height, width)` to the most likely class of each cell, `(batch, height, width)`."""
    return (outputs[0].argmax(axis=1).astype(np.float32),)


def _spans(outputs: Arrays, inputs: Inputs) -> Arrays:
    """Logits `(batch, tokens, 2)` to the first and last token of the likeliest answer in the text, `(batch, 2)`."""
    return (np.stack([_span(*pair) for pair in zip(outputs[0], inputs, strict=True)]),)


def _span(logits: npt.NDArray[np.float32], tokens: Inputs) -> npt.NDArray[np.float32]:
    """Source: BERT's `run_squad`: the best sum of a start and an end at most 30 tokens long, both in the text."""
    in_text = (tokens[1] == 1) & (tokens[2] == 1)
    starts, ends = np.where(in_text[:, None], logits, -np.inf).T
    best, found = -np.inf, (0, 0)
    for length in range(min(LONGEST_SPAN, len(starts))):
        sums = starts[: len(starts) - length] + ends[length:]
        first = int(sums.argmax())
        if sums[first] > best:
            best, found = float(sums[first]), (first, first + length)
    return np.array(found, np.float32)


POSTPROCESSES: dict[str, Postprocess] = {"boxes": _boxes, "segments": _segments, "span": _spans, "ssd": _of_ssd}
"""By the name that task files use."""
