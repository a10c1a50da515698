"""Where every event of a trace happened: in which step, phase and module, and by which line of the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfguard.profile.trace.events import NO_SEQUENCE, EventKind
from perfguard.profile.trace.names import Role, module_of, role_of, role_of_frame
from perfguard.profile.trace.nesting import BoolArray, IntArray, Tree, nest
from perfguard.profile.trace.phases import INHERITED, OUTSIDE, Marks, PhaseArray, marks_of
from perfguard.profile.trace.sources import UNKNOWN, Course, distinct, sources_of
from perfguard.profile.trace.trace import IndexArray, Trace
from perfguard.records.protocol import STEP_WINDOW

RoleArray = npt.NDArray[np.int8]

NO_STEP = -1
"""Step of events outside all of them."""
NO_EVENT = -1
"""Position of no event; the last one, where some arrays have an element for it."""
_ORDERS_OF_GRADIENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """Arrays in the trace's order, shape `(events,)`."""

    tree: Tree
    """The nesting."""
    windows: IntArray
    """The event around each step, shape `(steps,)`."""
    step: IntArray
    """Position in `windows`, or `NO_STEP`."""
    phase: PhaseArray
    """Position in PHASES; of no meaning outside steps."""
    module: IndexArray
    """Position in `modules`. Of a backward op it is the module of the forward op that it belongs to."""
    modules: tuple[str, ...]
    """Paths of modules, classes of optimizers; the first is empty, for outside all of them."""
    source: IndexArray
    """Position in `sources`. Of a backward op it is that of its forward op, unless the backward is the user's code."""
    sources: tuple[str, ...]
    """`train.py:88`; the first is empty, for unknown."""
    courses: Mapping[int, Course]
    """How the lines follow each other, by the number of the thread; empty where no trace of them is kept."""
    is_op: BoolArray
    """Whether the event's own time is an op's: not of annotations, modules, or autograd's engine."""
    is_outside: BoolArray
    """Whether nothing around the event tells its phase, so that it goes by what comes before and after it. Time between
    its children can then belong to several phases."""
    marks: Marks
    """What the phases of such places go by."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Surroundings:
    """What events are in, by the tree alone; one element more, for the event that is none."""

    step_window: IntArray
    """Outermost window around it."""
    phase: PhaseArray
    """By what it lies in."""
    place: IntArray
    """Innermost event around it that names a module: a module, a backward, an optimizer."""


def context_of(trace: Trace) -> Context:
    """Place the events of a trace.

    Backward ops have no module of their own. They get that of the forward op with the same sequence number or, where
    there is none, as for the accumulation of gradients, that of the backward op before, which made the gradient.
    """
    tree = nest(trace)
    role = _roles(trace)
    around = _surroundings(tree, role)
    windows, step = _steps(around.step_window)
    forward = _forward_ops(trace, tree, role, step)
    modules, module_at = _modules(trace, tree, role, around.place, forward)
    sources = sources_of(trace)
    phase = around.phase[:-1]
    is_outside = phase == OUTSIDE
    marks = marks_of(role, ~is_outside & (around.phase[tree.parent] == OUTSIDE), step, trace.sequence)
    stray = np.flatnonzero(is_outside & (step >= 0))
    phase[stray] = marks.phase_at(stray, step[stray])
    return Context(
        tree=tree,
        windows=windows,
        step=step,
        phase=phase,
        module=module_at[around.place[:-1]],
        modules=modules,
        source=_lines(sources.at_start, around.place[:-1], forward),
        sources=sources.lines,
        courses=sources.courses,
        is_op=(trace.kind == EventKind.OP) & ((role == Role.NONE) | (role == Role.LOSS_OP)),
        is_outside=is_outside,
        marks=marks,
    )


def _roles(trace: Trace) -> RoleArray:
    """Roles of events; a profiler's steps are no windows where there are windows of our own."""
    roles = np.array([role_of(name) for name in trace.names], dtype=np.int8)
    if STEP_WINDOW in trace.names:
        others = np.array([name != STEP_WINDOW for name in trace.names])
        roles[others & (roles == Role.STEP)] = Role.NONE
    frames = np.array([role_of_frame(name) for name in trace.names], dtype=np.int8)
    found: RoleArray = np.where(trace.kind == EventKind.FRAME, frames[trace.name], roles[trace.name])
    found[(trace.kind == EventKind.ALLOCATION) | ((found == Role.LOSS_OP) & (trace.kind != EventKind.OP))] = Role.NONE
    return found


_NAMES_MODULE = np.array([role not in {Role.NONE, Role.STEP, Role.LOSS_OP, Role.LOADER} for role in Role])


def _surroundings(tree: Tree, role: RoleArray) -> _Surroundings:
    """Hand down what is around events, level by level."""
    size = role.size
    window = np.full(size + 1, NO_EVENT, dtype=np.intp)
    phase = np.full(size + 1, OUTSIDE, dtype=np.int8)
    place = np.full(size + 1, NO_EVENT, dtype=np.intp)
    for level in tree.levels:
        above, own = tree.parent[level], role[level]
        window[level] = np.where((own == Role.STEP) & (window[above] == NO_EVENT), level, window[above])
        phase[level] = INHERITED[phase[above], own]
        place[level] = np.where(_NAMES_MODULE[own], level, place[above])
    return _Surroundings(step_window=window, phase=phase, place=place)


def _steps(step_window: IntArray) -> tuple[IntArray, IntArray]:
    """The windows in their order, and of each event the position of its own among them."""
    inside = step_window[:-1] != NO_EVENT
    windows = np.unique(step_window[:-1][inside])
    return windows, np.where(inside, np.searchsorted(windows, step_window[:-1]), NO_STEP)


def _forward_ops(trace: Trace, tree: Tree, role: RoleArray, step: IntArray) -> IntArray:
    """For each backward of an op the event that is its forward, else `NO_EVENT`; one element more.

    Autograd counts up when it makes a node, so of the ops with one number the last to start is the one that made it.
    """
    number, is_gradient = trace.sequence, (role == Role.GRADIENT) & (step >= 0)
    # The node within a backward bears the same number, and is no forward op.
    is_node = (role[tree.parent] == Role.GRADIENT) & (number[tree.parent] == number) & (tree.parent >= 0)
    forward = np.full(role.size + 1, NO_EVENT, dtype=np.intp)
    gradients = np.flatnonzero(is_gradient)
    made = np.flatnonzero((number != NO_SEQUENCE) & (step >= 0) & ~is_gradient & ~is_node)
    if not gradients.size or not made.size:
        return forward
    made = made[np.argsort(number[made], kind="stable")]
    last = np.searchsorted(number[made], number[gradients], side="right") - 1
    known = (last >= 0) & (number[gradients] != NO_SEQUENCE) & (number[made[last]] == number[gradients])
    forward[gradients] = _carried_on(np.where(known, made[last], NO_EVENT), step[gradients])
    return forward


def _carried_on(values: IntArray, steps: IntArray) -> IntArray:
    """Values with those before them of the same step, where they are negative."""
    known = np.maximum.accumulate(np.where(values >= 0, np.arange(values.size), -1))
    carried: IntArray = np.where((known >= 0) & (steps[known] == steps), values[known], NO_EVENT)
    return carried


def _modules(
    trace: Trace, tree: Tree, role: RoleArray, place: IntArray, forward: IntArray
) -> tuple[tuple[str, ...], IndexArray]:
    """Paths of modules, and the position of its own for each event that names one; one element more."""
    modules, of_name = distinct(trace.names, module_of)
    at = np.zeros(role.size + 1, dtype=np.int32)
    named = np.flatnonzero(_NAMES_MODULE[role] & (role != Role.GRADIENT))
    at[named] = of_name[trace.name[named]]
    frames = named[trace.kind[named] == EventKind.FRAME]
    if frames.size:
        modules = _nest_frames(modules, at, frames, place[tree.parent[frames]])
    gradients = np.flatnonzero(role == Role.GRADIENT)
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
    runs_no_own = at_start[gradient] == at_start[place[gradient]]
    gradient = gradient[runs_no_own]
    made_by = forward[place[gradient]]
    lines: IndexArray = at_start.copy()
    # The forward of a gradient's gradient lies in a backward, whose line is known one round earlier.
    for _ in range(_ORDERS_OF_GRADIENTS):
        of_forward = lines[made_by]
        lines[gradient] = np.where(of_forward != UNKNOWN, of_forward, at_start[gradient])
    return lines
