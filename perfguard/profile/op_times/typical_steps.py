"""What a step usually takes: the steps that something held up, or that left work out, are no part of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

STEP_TRIM = 1 / 3
"""Part of a process's steps left out at each end. What happens in fewer than a third of the steps is left out with
it."""


def typical_steps(values: FloatArray, process: IntArray, processes: tuple[int, ...]) -> FloatArray:
    """What a step of each process usually takes: the mean of the middle third of its steps, of every key by itself.

    What preempts a step falls into a few ops of it, and on a busy machine no step is spared.

    Args:
        values: Shape `(steps,)`, or `(steps, keys)`.
        process: Of each step.
        processes: Which ones, in this order; each has a step.

    Returns:
        Shape `(processes,)` or `(processes, keys)`.
    """
    ordered = [np.sort(values[process == number], axis=0) for number in processes]
    return np.stack([steps[_middle_third(len(steps))].mean(axis=0) for steps in ordered])


def middle_steps(wall_s: FloatArray, process: IntArray) -> BoolArray:
    """Which steps are in the middle third of their process by their length, shape `(steps,)`.

    What adds up in each step adds up over these, which it does not where each key has its own middle.
    """
    chosen = np.zeros(wall_s.size, dtype=np.bool_)
    for number in np.unique(process):
        steps = np.flatnonzero(process == number)
        chosen[steps[np.argsort(wall_s[steps], kind="stable")[_middle_third(steps.size)]]] = True
    return chosen


def leaves_steps_out(steps: int) -> bool:
    """Whether what a process with so many steps usually takes is the mean of fewer than all."""
    return _middle_third(steps) != slice(0, steps)


def _middle_third(steps: int) -> slice:
    """Of so many sorted values; at least one of any."""
    cut = int(STEP_TRIM * steps + 1e-9)  # a third of six is two
    return slice(cut, steps - cut)
