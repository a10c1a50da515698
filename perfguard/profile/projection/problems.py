"""The unique problems of a step: which ops it calls, with what arguments, how often and for how long.

Only outermost ops count, and what they call belongs to them: replayed alone, they call it again.

torch's profiler writes no sizes of lists of more than 30 tensors (`TENSOR_LIST_DISPLAY_LENGTH_LIMIT` in
torch/csrc/profiler/util.h). A fused optimizer is called with lists of all parameters, of their gradients and of its
moments, each as large as the parameter; and how large the parameters are follows from the accumulation of their
gradients in the same step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.profile.op_times.overhead import COLD_AFTER_S
from perfguard.profile.op_times.typical_steps import middle_steps
from perfguard.profile.trace.context import PHASES, context_of
from perfguard.profile.trace.events import EventKind, read_signature
from perfguard.profile.trace.recorded_calls import RawCall, outermost_ops, recorded_calls, same_work
from perfguard.profile.trace.trace import MOST_EVENTS, read_trace
from perfguard.records.facts import Fact, fact
from perfguard.records.steps.ops import StepPhase

ACCUMULATION = "torch::autograd::AccumulateGrad"
"""Node of autograd that adds a gradient to a parameter's; called with the gradient."""
TENSOR_LIST = "TensorList"  # Type of an argument that is a list of tensors
LONGEST_LIST = 30  # Tensors of the longest list whose sizes a trace holds
_NS_PER_S = 1e9


class _Lists(NamedTuple):
    """The lists that an op is called with."""

    like_parameters: tuple[int, ...]  # Arguments that have one tensor for each parameter, of its size
    counts: int | None = None  # Argument that has one number for each parameter
    optional: int | None = None
    """Argument that is like the parameters only where a flag is true or a factor is not zero."""
    switch: int = 0  # That flag or factor
    increment: bool = False  # Whether it has such lists only where it adds 1 to them


_ADAM = _Lists((0, 1, 2, 3), counts=5, optional=4, switch=11)
_LISTS = {
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": _Lists((0, 1), optional=2, switch=4),
    "aten::_fused_adagrad_": _Lists((0, 1, 2), counts=3),
    "aten::_foreach_add_": _Lists((), counts=0, increment=True),
    "aten::_foreach_norm": _Lists((0,)),
    "aten::_foreach_mul_": _Lists((0,)),
}
"""As torch.optim and clip_grad_norm_ call them. Source: their schemas in native_functions.yaml."""


def filled_lists(
    parameters: Sequence[Sequence[int]], op: str, dims: Sequence[Any], types: Sequence[str], concrete: Sequence[str]
) -> list[Any] | None:
    """`Input Dims` of an op that is called for all parameters, lists filled in; None where not needed or known.

    `parameters` are the sizes of the parameters that a step makes gradients of; the rest is as in the trace.
    """
    lists = _LISTS.get(op)
    is_left_out = types[:1] == [TENSOR_LIST] and dims[:1] == [[]]
    if lists is None or not is_left_out or len(parameters) <= LONGEST_LIST or len(dims) != len(types):
        return None
    if lists.increment and concrete[1:] != ["1"]:
        return None
    found = list(dims)
    for index in lists.like_parameters:
        found[index] = [list(size) for size in parameters]
    (switch,) = concrete[lists.switch : lists.switch + 1] or [""]
    if lists.optional is not None and switch.strip("0.") not in {"", "False"}:
        found[lists.optional] = [list(size) for size in parameters]
    if lists.counts is not None:
        found[lists.counts] = [[] for _ in parameters]
    return found


class Problem(Struct, frozen=True, kw_only=True):
    """An op with one set of arguments. The four lists are as in the trace, one entry for each argument."""

    op: str  # `aten::convolution`
    dims: Sequence[Any]  # Sizes of a tensor, a list of those for a list of tensors, else empty
    types: Sequence[str]  # C++ type of a tensor's elements, `TensorList`, `Scalar`, `ScalarList`, or empty
    strides: Sequence[Any]  # Like `dims`; empty where the trace has none
    concrete: Sequence[str]  # Texts of plain values, else empty
    detail: str  # Shapes, dtypes and layouts of its tensors, for people
    calls: float  # In a step
    observed_s: float  # Seconds of a step in all its calls, with everything that they call
    events: float
    """Events of the profiler in these calls, themselves included: each adds its cost to the seconds."""
    phases: tuple[StepPhase, ...]  # Where in the step it is called, in the order of a step
    modules: tuple[str, ...]  # Modules that call it, sorted; without the calls outside of modules
    assumed: tuple[str, ...] = ()  # What the trace does not record and was filled in


class StepProblems(Struct, frozen=True, kw_only=True):
    """What a step is made of.

    Seconds are means over the middle third of the steps, the same ones for all problems, so they never exceed the step.
    """

    problems: tuple[Problem, ...]  # Longest first
    wall_s: float  # Seconds of a step, profiled
    events: float  # Events of the profiler in a step
    steps: int

    @property
    def ops_s(self) -> float:
        """Seconds of a step in its ops."""
        return sum(problem.observed_s for problem in self.problems)


def read_problems(paths: Sequence[Path]) -> StepProblems:
    """The problems of all steps in some traces of the same work.

    Raises:
        StoreError: A trace cannot be read.
        ValueError: There is no path.
    """
    if not paths:
        raise ValueError("there is no trace to read problems from")
    tally = _Tally()
    for path in paths:
        tally.add(path)
    return tally.step_problems()


def without_profiler(step: StepProblems, *, bare_s: float | None, event_s: float, own_share: float) -> StepProblems:
    """The same with the profiler's cost taken out of the ops; no op gets less than zero seconds.

    What profiled steps are longer by beyond their events is shared out as in `profile.op_times.overhead`.

    Args:
        step: As profiled.
        bare_s: Seconds of a step of the same work without the profiler; without it, the profiler costs nothing.
        event_s: Cost of an event, measured on empty ones; events never cost more than profiling adds to the step.
        own_share: Part of that which lies in the event itself; the rest is in what is around it.
    """
    if bare_s is None:
        return step
    longer_s = max(0.0, step.wall_s - bare_s)
    cost_s = min(event_s, longer_s / step.events) if step.events else 0.0
    events_outside = max(0.0, step.events - sum(problem.events for problem in step.problems))
    outside_s = max(0.0, step.wall_s - step.ops_s - cost_s * events_outside)
    left_s, cooling_s = [], []
    for problem in step.problems:
        left_s.append(max(0.0, problem.observed_s - cost_s * (problem.events - (1 - own_share) * problem.calls)))
        cooling_s.append(min(left_s[-1], COLD_AFTER_S * problem.events))
    all_s = sum(cooling_s) + min(outside_s, COLD_AFTER_S * (events_outside + 1))
    cold_ratio = min(1.0, (longer_s - cost_s * step.events) / all_s) if all_s > 0 else 0.0
    rows = zip(step.problems, left_s, cooling_s, strict=True)
    problems = (replace(problem, observed_s=left - cold_ratio * cooling) for problem, left, cooling in rows)
    return replace(step, problems=_longest_first(problems))


def untold(problem: Problem) -> Fact | None:
    """Why a trace does not record enough to call an op again; None if it does."""
    if not problem.types:
        return fact("replay.no_arguments")
    lists = [index for index, kind in enumerate(problem.types) if kind == TENSOR_LIST]
    if lists and not problem.dims[lists[0]]:
        return fact("replay.no_sizes")
    return None


class _Sum(Struct):
    """What is known of one problem after some traces."""

    first: RawCall  # Its first call
    calls: int = 0
    duration_ns: Counter[int] = field(default_factory=Counter)  # By number of the step
    events: int = 0
    phases: set[int] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)


class _Tally:
    """Problems of several traces, added up."""

    def __init__(self) -> None:
        self._sums: dict[RawCall, _Sum] = {}
        self._parameters: list[Sequence[int]] = []
        self._walls_ns: list[int] = []
        self._events = 0

    def add(self, path: Path) -> None:
        trace = read_trace(path, most_events=MOST_EVENTS)
        context = context_of(trace)
        tops = outermost_ops(trace, context)
        # Where the first step adds gradients to those of its parameters.
        accumulations = np.flatnonzero(trace.begins_with(ACCUMULATION) & (context.step == 0))
        calls = recorded_calls(path, trace, np.concatenate([tops, accumulations]))
        gradients = (msgspec.json.decode(calls[each].dims) for each in accumulations.tolist() if each in calls)
        self._parameters = [dims[0] for dims in gradients if dims]
        lasts_ns = context.tree.end_ns - trace.start_ns
        # How many events that cost the profiler time lie in each event, itself included.
        costs = (trace.kind == EventKind.OP) | (trace.kind == EventKind.ANNOTATION)
        before = np.append([0], np.cumsum(costs))
        events = before[context.tree.stop] - before[:-1]
        for position in tops.tolist():
            call = calls.get(position, RawCall(name=trace.names[trace.name[position]]))
            found = self._sums.setdefault(same_work(call), _Sum(first=call))
            found.calls += 1
            found.duration_ns[len(self._walls_ns) + int(context.step[position])] += int(lasts_ns[position])
            found.events += int(events[position])
            found.phases.add(int(context.phase[position]))
            found.modules.add(context.modules[context.module[position]])
        self._walls_ns += lasts_ns[context.windows].tolist()
        self._events += int(events[context.windows].sum())

    def step_problems(self) -> StepProblems:
        steps = len(self._walls_ns)
        walls = np.array(self._walls_ns, dtype=np.float64)
        middle: list[int] = np.flatnonzero(middle_steps(walls, np.zeros(steps, dtype=np.int64))).tolist()
        calls_of_op = Counter[str]()
        for found in self._sums.values():
            calls_of_op[found.first.name] += found.calls
        return StepProblems(
            problems=_longest_first(
                self._problem(found, middle, is_once=calls_of_op[found.first.name] == steps)
                for found in self._sums.values()
            ),
            wall_s=fmean(self._walls_ns[step] for step in middle) / _NS_PER_S,
            events=self._events / steps,
            steps=steps,
        )

    def _problem(self, found: _Sum, middle: Sequence[int], *, is_once: bool) -> Problem:
        call, steps = found.first, len(self._walls_ns)
        dims, types, concrete = _list_in(call.dims), _list_in(call.types), _list_in(call.concrete)
        # Of an op that is called several times in a step, each call may be for some of the parameters.
        filled = filled_lists(self._parameters, call.name, dims, types, concrete) if is_once else None
        signature = read_signature(b",".join((msgspec.json.encode(filled or dims), call.types, call.strides)))
        return Problem(
            op=call.name,
            dims=filled or dims,
            types=types,
            strides=_list_in(call.strides),
            concrete=concrete,
            detail="  ".join(part for part in (signature.shapes, signature.dtypes, signature.layouts) if part),
            calls=found.calls / steps,
            observed_s=fmean(found.duration_ns[step] for step in middle) / _NS_PER_S,
            events=found.events / steps,
            phases=tuple(PHASES[phase] for phase in sorted(found.phases)),
            modules=tuple(sorted(found.modules - {""})),
            assumed=("lists=parameters_with_gradient",) if filled else (),
        )


def _longest_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (-problem.observed_s, problem.op, problem.detail)))


def _list_in(encoded: bytes) -> list[Any]:
    """A list of the trace; empty for what is none."""
    with suppress(msgspec.DecodeError):
        value = msgspec.json.decode(encoded)
        if isinstance(value, list):
            return value
    return []
