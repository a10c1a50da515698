"""Which part of a step an event belongs to: by what it lies in, else by what comes before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.events import NO_SEQUENCE
from perfguard.profile.trace.names import Role
from perfguard.profile.trace.nesting import IntArray
from perfguard.records.steps.ops import StepPhase

PhaseArray = npt.NDArray[np.int8]

PHASES = tuple(StepPhase)
"""Phases by their number in arrays."""
OUTSIDE = -1
"""Number of no phase: of an event that lies in nothing that tells."""

_LOAD, _FORWARD, _LOSS, _BACKWARD, _OPTIMIZER = range(len(PHASES))


def _inherited() -> PhaseArray:
    """Phase of an event by its parent's phase, the last for OUTSIDE, and its own role."""
    parents = np.array([*range(len(PHASES)), OUTSIDE], dtype=np.int8)
    table = np.repeat(parents[:, np.newaxis], len(Role), axis=1)
    table[:, Role.STEP] = OUTSIDE
    # Not inside backward, where forward again is what checkpointing costs, nor in a data set, whose transforms may be
    # modules.
    for phase in (OUTSIDE, _FORWARD, _OPTIMIZER):
        table[phase, Role.MODULE] = _FORWARD
        table[phase, Role.LOSS_MODULE] = _LOSS
    table[OUTSIDE, Role.LOSS_OP] = _LOSS
    table[:, Role.GRADIENT] = _BACKWARD
    table[:, Role.UPDATE] = _OPTIMIZER
    table[:, Role.ZERO_GRAD] = _OPTIMIZER
    table[:, Role.LOADER] = _LOAD
    return table


INHERITED = _inherited()
"""Phase of an event: `INHERITED[phase of its parent, its own role]`."""


class _Mark(IntEnum):
    """What a step passes on its way."""

    EDGE = 0
    """The start or the end of the step."""
    MODEL = 1
    LOSS = 2
    GRADIENT = 3
    UPDATE = 4
    NEXT_BACKWARD = 5
    """The first gradient of a backward that follows another one of its step, as with several micro-batches."""


_NO_MARK = -1
_MARKS = {
    Role.MODULE: _Mark.MODEL,
    Role.LOSS_MODULE: _Mark.LOSS,
    Role.LOSS_OP: _Mark.LOSS,
    Role.GRADIENT: _Mark.GRADIENT,
    Role.UPDATE: _Mark.UPDATE,
}
_MARK_OF_ROLE = np.array([_MARKS.get(role, _NO_MARK) for role in Role], dtype=np.int8)

_BETWEEN = np.array(
    [
        # next: EDGE    MODEL     LOSS      GRADIENT   UPDATE  NEXT_BACKWARD
        [_FORWARD, _LOAD, _FORWARD, _FORWARD, _OPTIMIZER, _FORWARD],  # after EDGE
        [_FORWARD, _FORWARD, _LOSS, _LOSS, _LOSS, _LOSS],  # after MODEL
        [_LOSS, _FORWARD, _LOSS, _LOSS, _LOSS, _LOSS],  # after LOSS
        [_OPTIMIZER, _LOAD, _FORWARD, _BACKWARD, _OPTIMIZER, _FORWARD],  # after GRADIENT
        [_OPTIMIZER, _LOAD, _FORWARD, _FORWARD, _OPTIMIZER, _FORWARD],  # after UPDATE
        [_OPTIMIZER, _LOAD, _FORWARD, _BACKWARD, _OPTIMIZER, _FORWARD],  # after NEXT_BACKWARD
    ],
    dtype=np.int8,
)
"""Phase between two marks. What precedes the model makes its input; what follows it makes a loss; what follows the
gradients, such as clipping them, prepares the update. Without modules, all up to the loss is forward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """Outermost events of each step that tell its phase, in the trace's order; shape `(marks,)`."""

    event: IntArray
    """Position in the trace."""
    step: IntArray
    """Step it belongs to."""
    mark: PhaseArray
    """Value of _Mark."""

    def phase_at(self, positions: IntArray, steps: IntArray) -> PhaseArray:
        """Phases of places that lie in nothing that tells.

        Args:
            positions: Each between the events before that position in the trace and those from it on.
            steps: Step of each.
        """
        following = np.searchsorted(self.event, positions)
        found: PhaseArray = _BETWEEN[self._mark_at(following - 1, steps), self._mark_at(following, steps)]
        return found

    def _mark_at(self, index: IntArray, steps: IntArray) -> PhaseArray:
        """Marks, an edge where there is none of the same step."""
        if not self.event.size:
            return np.full(index.size, _Mark.EDGE, dtype=np.int8)
        within = index.clip(0, self.event.size - 1)
        is_there = (index == within) & (self.step[within] == steps)
        found: PhaseArray = np.where(is_there, self.mark[within], np.int8(_Mark.EDGE))
        return found


def marks_of(
    role: npt.NDArray[np.int8], outermost: npt.NDArray[np.bool_], step: IntArray, sequence: npt.NDArray[np.int64]
) -> Marks:
    """The marks among all events.

    Args:
        role: Values of Role, shape `(events,)`.
        outermost: Whether an event, but nothing that it lies in, tells a phase.
        step: Step of each, negative for none.
        sequence: Autograd's number of each, or NO_SEQUENCE.
    """
    event = np.flatnonzero(outermost & (step >= 0) & (_MARK_OF_ROLE[role] != _NO_MARK))
    mark = _MARK_OF_ROLE[role[event]]
    mark[_begins_next_backward(mark, step[event], sequence[event])] = _Mark.NEXT_BACKWARD
    return Marks(event=event, step=step[event], mark=mark)


def _begins_next_backward(mark: PhaseArray, step: IntArray, sequence: npt.NDArray[np.int64]) -> IntArray:
    """Marks that are the first gradient of a further backward of their step.

    Autograd counts up as it makes nodes, and a backward runs those that are ready from the highest number down. So the
    numbers of one backward fall, and a number above that of the gradient before begins another.
    """
    numbered = np.flatnonzero((mark == _Mark.GRADIENT) & (sequence != NO_SEQUENCE))
    rises = np.diff(sequence[numbered]) > 0
    in_one_step = np.diff(step[numbered]) == 0
    found: IntArray = numbered[1:][rises & in_one_step]
    return found
