"""Answers of models as bytes, which LoadGen logs, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from perfguard.tasks.child.examples import Inputs
from perfguard.tasks.child.postprocessing import Arrays
from perfguard.tasks.loadgen_logs import LoggedAnswer


def encoded(outputs: Arrays) -> list[npt.NDArray[np.float32]]:
    """One flat array for each example of a batch: all outputs, one after the other."""
    if len(outputs) == 1:
        rows = np.ascontiguousarray(outputs[0], dtype=np.float32).reshape(len(outputs[0]), -1)
    else:
        rows = np.concatenate([output.reshape(len(output), -1) for output in outputs], axis=1, dtype=np.float32)
    return list(rows)


def answer_each(run: Callable[[Inputs], Arrays], inputs: Inputs) -> Arrays:
    """Answers to examples that come one by one, as LoadGen sends them."""
    answered = [run(inputs[row : row + 1]) for row in range(len(inputs))]
    return tuple(np.concatenate(parts) for parts in zip(*answered, strict=True))


def decoded(answers: Sequence[LoggedAnswer], like: Arrays) -> tuple[npt.NDArray[np.int64], Arrays]:
    """Examples' indices, `(answers,)`, and outputs in the shapes of `like`, whose first axis is the batch.

    Raises:
        ValueError: An answer has another size.
    """
    shapes = [output.shape[1:] for output in like]
    sizes = [int(np.prod(shape)) for shape in shapes]
    rows = np.stack([np.frombuffer(answer.data, dtype=np.float32) for answer in answers])
    if rows.shape[1] != sum(sizes):
        raise ValueError(f"answers have {rows.shape[1]} numbers, the model {sum(sizes)}")
    parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    indices = np.array([answer.sample for answer in answers], dtype=np.int64)
    return indices, tuple(part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True))
