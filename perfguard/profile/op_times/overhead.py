"""What the profiler itself costs, and which op's time it hides in.

Each event costs a little inside it, so in its own time, and more around it, so in its parent's. The event of a module
is opened and closed by Python hooks and costs several times as much. What they cost, and which part lies inside, the
worker measures on empty events. Profiled steps are longer by more than that, since an op that runs for long leaves
cold caches to the profiler. So the rest lies in everything in proportion to its time, as far as that makes caches
colder. One cost is taken for both arms: what differs between them is never explained away as overhead of one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.profile.op_times.typical_steps import BoolArray, FloatArray, IntArray, typical_steps
from perfguard.records.steps.ops import PYTHON_OP, OpKey, StepPhase

COLD_AFTER_S = 30e-6
"""Time without an event after which the next one is no costlier. From 10 to 100 us it makes little difference to what
is unexplained of an optimizer in small ops, of slower kernels and of a doubled call; with all time, or none, that is
3 % of the step (docs/measurements, culprits)."""

EMPTY_OPS = 0.05
"""Part of the kinds of ops that do next to nothing: what these take for an event is nearly all the profiler's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Cost of the profiler."""

    event_s: float
    """Seconds for the event of an op, of autograd's engine, or of a plain annotation; 0 where no unprofiled step says
    it."""
    module_s: float
    """Seconds for the event of a module, with the hooks that open and close it."""
    own_share: float
    """Part of an op's event that lies inside it; the rest is around it."""
    cold_ratio: float
    """Part of the time between events, of at most `COLD_AFTER_S` each, that is the profiler's beside that."""
    error_ratio: float
    """Standard error of all the cost, relative to it; at most 1."""
    step_ratio: float
    """How much longer a profiled step of the baseline takes; nan where unknown."""


NO_OVERHEAD = Overhead(event_s=0.0, module_s=0.0, own_share=0.0, cold_ratio=0.0, error_ratio=0.0, step_ratio=math.nan)
"""Nothing is known of it, so nothing is taken out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChargedEvents:
    """How many events' cost each key's time contains, shape `(steps, keys)`."""

    plain: FloatArray
    """Events that hooks have no part in; over the keys they add up to the step's events but for the modules'."""
    modules: FloatArray
    """Events of modules, all of them at places' time in no op."""

    def cost_s(self, overhead: Overhead) -> FloatArray:
        """Seconds of the profiler in each key's time."""
        return overhead.event_s * self.plain + overhead.module_s * self.modules


def profiler_cost_s(profile: OpProfile, overhead: Overhead) -> FloatArray:
    """Seconds of the profiler in each key's time, shape `(steps, keys)`; never more than the key has."""
    events_s = _events_cost_s(profile, overhead)
    cost_s: FloatArray = events_s + overhead.cold_ratio * _cooling_s(profile, events_s)
    return cost_s


def _cooling_s(profile: OpProfile, events_s: FloatArray) -> FloatArray:
    """Seconds of each key that make caches colder, shape `(steps, keys)`.

    Up to `COLD_AFTER_S` of each call, and in a place of each piece between two events.
    """
    python = _python(profile.keys)
    calls = profile.calls.astype(np.float64)
    inside = _by_place(profile.keys, np.where(python, 0.0, calls))
    if profile.child_events is not None:
        inside = profile.child_events.astype(np.float64)
    pieces = np.where(python, inside + 1.0, calls)
    found: FloatArray = np.minimum(profile.self_s - events_s, COLD_AFTER_S * pieces)
    return found


def _events_cost_s(profile: OpProfile, overhead: Overhead) -> FloatArray:
    """What a wrapper that does next to nothing cannot hold is in the other events of its place, as they cost."""
    cost_s = charged_events(profile, overhead.own_share).cost_s(overhead)
    held_s = np.minimum(cost_s, profile.self_s)
    place, places = _places(profile.keys)
    excess_s = _sums(cost_s - held_s, place, places)
    weights = np.where(held_s < profile.self_s, held_s, 0.0)
    total_s = _sums(weights, place, places)
    share = np.divide(excess_s, total_s, out=np.zeros_like(excess_s), where=total_s > 0)
    found: FloatArray = np.minimum(held_s + weights * share[:, place], profile.self_s)
    return found


def _python(keys: tuple[OpKey, ...]) -> BoolArray:
    """Which keys are time in no op."""
    return np.array([key.op == PYTHON_OP for key in keys], dtype=np.bool_)


def _places(keys: tuple[OpKey, ...]) -> tuple[IntArray, int]:
    """Number of each key's phase and module, and how many numbers there are."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys((key.phase, key.module) for key in keys))}
    return np.array([numbers[key.phase, key.module] for key in keys], dtype=np.int64), len(numbers)


def _sums(values: FloatArray, place: IntArray, places: int) -> FloatArray:
    """Values by place, shape `(steps, places)`."""
    sums = np.zeros((values.shape[0], places))
    np.add.at(sums.T, place, values.T)
    return sums


def charged_events(profile: OpProfile, own_share: float) -> ChargedEvents:
    """Which keys' time contains the cost of events.

    The event of an op costs `own_share` in the op and the rest in its parent. Where a profile does not know the
    parents, the rest goes to the place that called the op: the time in no op of its module, or of the nearest above.
    """
    python = _python(profile.keys)
    calls = profile.calls.astype(np.float64)
    ops = np.where(python, 0.0, calls)
    others = np.maximum(profile.events - ops.sum(axis=1), 0.0)[:, np.newaxis]
    modules = _modules(profile, others)
    # What is neither an op nor a module lies in places, by how many annotations each has beside the modules'.
    engine = np.zeros_like(ops)
    engine[:, python] = (others - modules.sum(axis=1, keepdims=True)) * _shares(
        np.maximum(calls[:, python] - modules[:, python], 0.0)
    )
    around = _by_place(profile.keys, ops) if profile.child_events is None else _op_children(profile, python, others)
    return ChargedEvents(plain=own_share * ops + (1 - own_share) * around + engine, modules=modules)


def _modules(profile: OpProfile, others: FloatArray) -> FloatArray:
    """Events of modules by key; never more of them than there are events beside the ops."""
    if profile.module_calls is None:
        return np.zeros(profile.calls.shape)
    modules = profile.module_calls.astype(np.float64)
    total = modules.sum(axis=1, keepdims=True)
    bounded: FloatArray = modules * np.minimum(1.0, others / np.maximum(total, 1.0))
    return bounded


def estimate_overhead(baseline: ArmProfile, candidate: ArmProfile, pairs: ProcessPairs) -> Overhead:
    """The cost that explains how much longer profiled steps take: the median over all processes of both arms.

    Events never cost more than that.
    """
    if not (baseline.has_bare_steps and candidate.has_bare_steps):
        return NO_OVERHEAD
    arms = (baseline, candidate)
    sides = tuple(zip(arms, (pairs.baseline, pairs.candidate), strict=True))
    event_s, module_s = (
        sum(getattr(arm.event_cost, name) for arm in arms) / len(arms) for name in ("event_s", "module_s")
    )
    found = [_longer(arm, processes, event_s=event_s, module_s=module_s) for arm, processes in sides]
    bare_s, longer_s, events_s = (
        np.concatenate([getattr(steps, name) for steps in found]) for name in ("bare_s", "longer_s", "events_s")
    )
    part = float(np.clip(np.median(longer_s / np.maximum(events_s, 1e-12)), 0.0, 1.0))
    known = Overhead(
        event_s=part * event_s,
        module_s=part * module_s,
        own_share=_own_share(arms, part * event_s),
        cold_ratio=0.0,
        error_ratio=_error_ratio(longer_s / bare_s),
        step_ratio=float(np.median(found[0].longer_s / found[0].bare_s)),
    )
    cooling_s = np.concatenate([_typical_cooling_s(arm.profile, processes, known) for arm, processes in sides])
    ratios = (longer_s - part * events_s) / np.maximum(cooling_s, 1e-12)
    return replace(known, cold_ratio=float(np.clip(np.median(ratios), 0.0, 1.0)))


def _typical_cooling_s(profile: OpProfile, processes: tuple[int, ...], overhead: Overhead) -> FloatArray:
    """Of all keys together, shape `(processes,)`."""
    cooling_s = _cooling_s(profile, _events_cost_s(profile, overhead)).sum(axis=1)
    return typical_steps(cooling_s, profile.process, processes)


def _own_share(arms: tuple[ArmProfile, ...], event_s: float) -> float:
    """As measured, but no more than the emptiest ops can hold: no op takes less than no time."""
    measured = sum(arm.event_cost.own_share for arm in arms) / len(arms)
    held_s = min(_emptiest_ops_s(arm.profile) for arm in arms)
    return min(measured, held_s / event_s) if event_s > 0 else measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LongerSteps:
    """Steps of one arm with and without the profiler, each of shape `(processes,)`."""

    bare_s: FloatArray
    longer_s: FloatArray
    events_s: FloatArray
    """What their events cost as it was measured on empty ones."""


def _longer(arm: ArmProfile, processes: tuple[int, ...], *, event_s: float, module_s: float) -> _LongerSteps:
    profile = arm.profile
    bare_s = typical_steps(arm.bare_s, arm.bare_process, processes)
    charged = charged_events(profile, own_share=0.0)
    events_s = event_s * charged.plain.sum(axis=1) + module_s * charged.modules.sum(axis=1)
    return _LongerSteps(
        bare_s=bare_s,
        longer_s=typical_steps(profile.wall_s, profile.process, processes) - bare_s,
        events_s=typical_steps(events_s, profile.process, processes),
    )


def _error_ratio(values: FloatArray) -> float:
    """Standard error of the median, relative to it; for normal values that is 1.2533 times the mean's."""
    value = float(np.median(values))
    if value <= 0:
        return 0.0
    error = 1.2533 * float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0
    return min(1.0, error / value)


def _emptiest_ops_s(profile: OpProfile) -> float:
    """What the kinds of ops that do next to nothing take for a call, themselves; inf without any op."""
    calls = np.median(profile.calls, axis=0)
    real = ~_python(profile.keys) & (calls > 0)
    if not real.any():
        return math.inf
    return float(np.quantile(np.median(profile.self_s, axis=0)[real] / calls[real], EMPTY_OPS, method="lower"))


def _op_children(profile: OpProfile, python: BoolArray, annotations: FloatArray) -> FloatArray:
    """Children that are ops: annotations lie in places, by how many children each has."""
    children = np.array(profile.child_events, dtype=np.float64)
    inside = children[:, python]
    children[:, python] = np.maximum(inside - annotations * _shares(inside), 0.0)
    return children


def _by_place(keys: tuple[OpKey, ...], ops: FloatArray) -> FloatArray:
    around = np.zeros_like(ops)
    np.add.at(around.T, _calling_places(keys), ops.T)
    return around


def _shares(weights: FloatArray) -> FloatArray:
    """Parts of each row's sum, even where that is 0."""
    shares = np.full_like(weights, 1 / max(1, weights.shape[1]))
    total = weights.sum(axis=1, keepdims=True)
    np.divide(weights, total, out=shares, where=total > 0)
    return shares


def _calling_places(keys: tuple[OpKey, ...]) -> IntArray:
    """For each key the column of the time in no op around it; its own column where there is none."""
    python = {(key.phase, key.module): column for column, key in enumerate(keys) if key.op == PYTHON_OP}
    found: dict[tuple[StepPhase, str], int | None] = {}
    columns = np.arange(len(keys), dtype=np.int64)
    for column, key in enumerate(keys):
        place = (key.phase, key.module)
        if place not in found:
            found[place] = _nearest(python, key.phase, key.module)
        nearest = found[place]
        if nearest is not None:
            columns[column] = nearest
    return columns


def _nearest(python: dict[tuple[StepPhase, str], int], phase: StepPhase, module: str) -> int | None:
    while module and (phase, module) not in python:
        module = module.rpartition(".")[0]
    return python.get((phase, module))
