"""Where every event of a trace happened: in which step, phase and module, and by which line of the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfguard.profile.trace.events import NO_SEQUENCE, EventKind
from perfguard.profile.trace.names import EventRole, module_of, role_of, role_of_frame
from perfguard.profile.trace.nesting import BoolArray, IndexArray, IntArray, TimeArray, Tree, nest
from perfguard.profile.trace.sources import UNKNOWN, Course, distinct, sources_of
from perfguard.profile.trace.trace import Trace
from perfguard.records.protocol import STEP_WINDOW
from perfguard.records.steps.ops import StepPhase

RoleArray = npt.NDArray[np.int8]
PhaseArray = npt.NDArray[np.int8]

PHASES = tuple(StepPhase)  # Phases by their number in arrays
NO_STEP = -1  # Step of events outside all of them
NO_EVENT = -1  # Position of no event; the last one, where some arrays have an element for it
_OUTSIDE = -1  # Number of no phase: of an event that lies in nothing that has one
_ORDERS_OF_GRADIENTS = 3
_LOAD, _FORWARD, _LOSS, _BACKWARD, _OPTIMIZER = range(len(PHASES))
_NAMES_MODULE = np.array(
    [role not in {EventRole.NONE, EventRole.STEP, EventRole.LOSS_OP, EventRole.LOADER} for role in EventRole]
)


def _inherited() -> PhaseArray:
    """Phase of an event by its parent's phase, the last for _OUTSIDE, and its own role."""
    parents = np.array([*range(len(PHASES)), _OUTSIDE], dtype=np.int8)
    table = np.repeat(parents[:, np.newaxis], len(EventRole), axis=1)
    table[:, EventRole.STEP] = _OUTSIDE
    # Not inside backward, where forward again is what checkpointing costs, nor in a data set, whose transforms may be
    # modules.
    for phase in (_OUTSIDE, _FORWARD, _OPTIMIZER):
        table[phase, EventRole.MODULE] = _FORWARD
        table[phase, EventRole.LOSS_MODULE] = _LOSS
    table[_OUTSIDE, EventRole.LOSS_OP] = _LOSS
    table[:, EventRole.GRADIENT] = _BACKWARD
    table[:, EventRole.UPDATE] = _OPTIMIZER
    table[:, EventRole.ZERO_GRAD] = _OPTIMIZER
    table[:, EventRole.LOADER] = _LOAD
    return table


_INHERITED = _inherited()  # Phase of an event: `_INHERITED[phase of its parent, its own role]`


class _Mark(IntEnum):
    """What a step passes on its way."""

    EDGE = 0  # The start or the end of the step
    MODEL = 1
    LOSS = 2
    GRADIENT = 3
    UPDATE = 4
    NEXT_BACKWARD = 5
    """The first gradient of a backward that follows another one of its step, as with several micro-batches."""


_NO_MARK = -1
_MARKS = {
    EventRole.MODULE: _Mark.MODEL,
    EventRole.LOSS_MODULE: _Mark.LOSS,
    EventRole.LOSS_OP: _Mark.LOSS,
    EventRole.GRADIENT: _Mark.GRADIENT,
    EventRole.UPDATE: _Mark.UPDATE,
}
_MARK_OF_ROLE = np.array([_MARKS.get(role, _NO_MARK) for role in EventRole], dtype=np.int8)

_BETWEEN = np.array(
    [
        # next: EDGE    MODEL     LOSS      GRADIENT   UPDATE  NEXT_BACKWARD
        [_FORWARD, _LOAD, _FORWARD, _FORWARD, _OPTIMIZER, _FORWARD],  # after EDGE
        [_FORWARD, _FORWARD, _LOSS, _LOSS, _LOSS, _LOSS],  # after MODEL
        [_LOSS, _FORWARD, _LOSS, _LOSS, _LOSS, _LOSS],  # after LOSS
        [_OPTIMIZER, _LOAD, _FORWARD, _BACKWARD, _BACKWARD, _FORWARD],  # after GRADIENT
        [_OPTIMIZER, _LOAD, _FORWARD, _FORWARD, _OPTIMIZER, _FORWARD],  # after UPDATE
        [_OPTIMIZER, _LOAD, _FORWARD, _BACKWARD, _BACKWARD, _FORWARD],  # after NEXT_BACKWARD
    ],
    dtype=np.int8,
)
"""Phase between two marks. What precedes the model makes its input; what follows it makes a loss; what lies between
the gradients and the update, such as clipping them, works on gradients. Without modules, all up to the loss is
forward."""


class Marks(Struct, frozen=True, kw_only=True, eq=False):
    """Outermost events of each step that have a phase, in the trace's order; shape `(marks,)`."""

    event: IntArray
    step: IntArray
    mark: PhaseArray  # Values of _Mark

    def phase_at(self, positions: IntArray, steps: IntArray) -> PhaseArray:
        """Phases of places in steps that lie in nothing that has one: each is just before a position in the trace."""
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


def _marks_of(role: RoleArray, outermost: BoolArray, step: IntArray, sequence: TimeArray) -> Marks:
    """The marks among all events: those that have a phase, and lie in no event that has one."""
    event = np.flatnonzero(outermost & (step >= 0) & (_MARK_OF_ROLE[role] != _NO_MARK))
    mark = _MARK_OF_ROLE[role[event]]
    # The first gradient of a further backward of a step. Autograd counts up as it makes nodes, and a backward runs
    # those that are ready from the highest number down, so a number above that of the gradient before begins another.
    numbered = np.flatnonzero((mark == _Mark.GRADIENT) & (sequence[event] != NO_SEQUENCE))
    rises = np.diff(sequence[event[numbered]]) > 0
    in_one_step = np.diff(step[event[numbered]]) == 0
    mark[numbered[1:][rises & in_one_step]] = _Mark.NEXT_BACKWARD
    return Marks(event=event, step=step[event], mark=mark)


class Context(Struct, frozen=True, kw_only=True, eq=False):
    """Arrays in the trace's order, shape `(events,)`."""

    tree: Tree
    windows: IntArray  # The event around each step, shape `(steps,)`
    step: IntArray  # Position in `windows`, or `NO_STEP`
    phase: PhaseArray  # Position in PHASES; of no meaning outside steps
    module: IndexArray
    """Position in `modules`. Of a backward op it is the module of the forward op that it belongs to."""
    modules: tuple[str, ...]
    """Paths of modules, classes of optimizers; the first is empty, for outside all of them."""
    source: IndexArray
    """Position in `sources`. Of a backward op it is that of its forward op, unless the backward is the user's code."""
    sources: tuple[str, ...]  # `train.py:88`; the first is empty, for unknown
    courses: Mapping[int, Course]
    """How the lines follow each other, by the number of the thread; empty where no trace of them is kept."""
    is_op: BoolArray
    """Whether the event's own time is an op's: not of annotations, modules, or autograd's engine."""
    is_outside: BoolArray
    """Whether nothing around the event has a phase, so that its own goes by what comes before and after it. Time
    between its children can then belong to several phases."""
    marks: Marks  # What the phases of such places go by


def context_of(trace: Trace) -> Context:
    """Place the events of a trace.

    Backward ops have no module of their own. They get that of the forward op with the same sequence number or, where
    there is none, as for the accumulation of gradients, that of the backward op before, which made the gradient.
    """
    tree = nest(trace)
    role = _roles(trace)
    window, phase_at, place = _surroundings(tree, role)
    inside = window[:-1] != NO_EVENT
    windows = np.unique(window[:-1][inside])
    step = np.where(inside, np.searchsorted(windows, window[:-1]), NO_STEP)
    forward = _forward_ops(trace, tree, role, step)
    modules, module_at = _modules(trace, tree, role, place, forward)
    sources = sources_of(trace)
    phase = phase_at[:-1]
    is_outside = phase == _OUTSIDE
    marks = _marks_of(role, ~is_outside & (phase_at[tree.parent] == _OUTSIDE), step, trace.sequence)
    stray = np.flatnonzero(is_outside & (step >= 0))
    phase[stray] = marks.phase_at(stray, step[stray])
    return Context(
        tree=tree,
        windows=windows,
        step=step,
        phase=phase,
        module=module_at[place[:-1]],
        modules=modules,
        source=_lines(sources.at_start, place[:-1], forward),
        sources=sources.lines,
        courses=sources.courses,
        is_op=(trace.kind == EventKind.OP) & ((role == EventRole.NONE) | (role == EventRole.LOSS_OP)),
        is_outside=is_outside,
        marks=marks,
    )


def _roles(trace: Trace) -> RoleArray:
    """Roles of events; a profiler's steps are no windows where there are windows of our own."""
    roles = np.array([role_of(name) for name in trace.names], dtype=np.int8)
    if STEP_WINDOW in trace.names:
        others = np.array([name != STEP_WINDOW for name in trace.names])
        roles[others & (roles == EventRole.STEP)] = EventRole.NONE
    frames = np.array([role_of_frame(name) for name in trace.names], dtype=np.int8)
    found: RoleArray = np.where(trace.kind == EventKind.FRAME, frames[trace.name], roles[trace.name])
    found[(trace.kind == EventKind.ALLOCATION) | ((found == EventRole.LOSS_OP) & (trace.kind != EventKind.OP))] = (
        EventRole.NONE
    )
    return found


def _surroundings(tree: Tree, role: RoleArray) -> tuple[IntArray, PhaseArray, IntArray]:
    """The outermost window around each event, its phase, and the innermost event around it that names a module.

    One element more, for the event that is none.
    """
    size = role.size
    window = np.full(size + 1, NO_EVENT, dtype=np.intp)
    phase = np.full(size + 1, _OUTSIDE, dtype=np.int8)
    place = np.full(size + 1, NO_EVENT, dtype=np.intp)
    for level in tree.levels:
        above, own = tree.parent[level], role[level]
        window[level] = np.where((own == EventRole.STEP) & (window[above] == NO_EVENT), level, window[above])
        phase[level] = _INHERITED[phase[above], own]
        place[level] = np.where(_NAMES_MODULE[own], level, place[above])
    return window, phase, place


def _forward_ops(trace: Trace, tree: Tree, role: RoleArray, step: IntArray) -> IntArray:
    """For each backward of an op the event that is its forward, else `NO_EVENT`; one element more.

    Autograd counts up when it makes a node, so of the ops with one number the last to start is the one that made it.
    """
    number, is_gradient = trace.sequence, (role == EventRole.GRADIENT) & (step >= 0)
    # The node within a backward has the same number, and is no forward op.
    is_node = (role[tree.parent] == EventRole.GRADIENT) & (number[tree.parent] == number) & (tree.parent >= 0)
    forward = np.full(role.size + 1, NO_EVENT, dtype=np.intp)
    gradients = np.flatnonzero(is_gradient)
    made = np.flatnonzero((number != NO_SEQUENCE) & (step >= 0) & ~is_gradient & ~is_node)
    if not gradients.size or not made.size:
        return forward
    made = made[np.argsort(number[made], kind="stable")]
    last = np.searchsorted(number[made], number[gradients], side="right") - 1
    known = (last >= 0) & (number[gradients] != NO_SEQUENCE) & (number[made[last]] == number[gradients])
    made_by, steps = np.where(known, made[last], NO_EVENT), step[gradients]
    # Those without one take it from the backward before them in the same step.
    before = np.maximum.accumulate(np.where(made_by >= 0, np.arange(made_by.size), NO_EVENT))
    forward[gradients] = np.where((before >= 0) & (steps[before] == steps), made_by[before], NO_EVENT)
    return forward


def _modules(
    trace: Trace, tree: Tree, role: RoleArray, place: IntArray, forward: IntArray
) -> tuple[tuple[str, ...], IndexArray]:
    """Paths of modules, and the position of its own for each event that names one; one element more."""
    modules, of_name = distinct(trace.names, module_of)
    at = np.zeros(role.size + 1, dtype=np.int32)
    named = np.flatnonzero(_NAMES_MODULE[role] & (role != EventRole.GRADIENT))
    at[named] = of_name[trace.name[named]]
    frames = named[trace.kind[named] == EventKind.FRAME]
    if frames.size:
        modules = _nest_frames(modules, at, frames, place[tree.parent[frames]])
    gradients = np.flatnonzero(role == EventRole.GRADIENT)
    origin = place[forward[gradients]]
    # The forward of a gradient's gradient lies in a backward, whose module is known one round earlier.
    for _ in range(_ORDERS_OF_GRADIENTS):
        at[gradients] = at[origin]
    return modules, at


def _nest_frames(modules: tuple[str, ...], at: IndexArray, frames: IntArray, around: IntArray) -> tuple[str, ...]:
    """Give frames of modules, which know their class only, the path from the outermost one."""
    positions = {module: position for position, module in enumerate(modules)}
    paths = list(modules)
    for frame, outer in zip(frames.tolist(), around.tolist(), strict=True):
        path = f"{paths[at[outer]]}.{paths[at[frame]]}".removeprefix(".")
        position = positions.setdefault(path, len(positions))
        if position == len(paths):
            paths.append(path)
        at[frame] = position
    return tuple(paths)


def _lines(at_start: IndexArray, place: IntArray, forward: IntArray) -> IndexArray:
    """Lines of events; of a backward op the line of its forward, where that is known.

    A backward that is the user's own code, or calls it, has lines of its own.
    """
    gradient = np.flatnonzero(forward[place] != NO_EVENT)
    if not at_start.any() or not gradient.size:
        return at_start
    gradient = gradient[at_start[gradient] == at_start[place[gradient]]]
    made_by = forward[place[gradient]]
    lines: IndexArray = at_start.copy()
    # The forward of a gradient's gradient lies in a backward, whose line is known one round earlier.
    for _ in range(_ORDERS_OF_GRADIENTS):
        of_forward = lines[made_by]
        lines[gradient] = np.where(of_forward != UNKNOWN, of_forward, at_start[gradient])
    return lines
