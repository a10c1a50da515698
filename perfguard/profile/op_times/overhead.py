"""What the profiler itself costs, and which op's time it hides in.

Each event costs a little inside it, so in its own time, and more around it, so in its parent's. The event of a module
is opened and closed by Python hooks and costs several times as much. What they cost, and which part lies inside, the
worker measures on empty events. Profiled steps are longer by more than that, since an op that runs for long leaves
cold caches to the profiler. So the rest lies in everything in proportion to its time, as far as that makes caches
colder. One cost is taken for both arms: what differs between them is never explained away as overhead of one of them.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.profile.op_times.typical_steps import BoolArray, FloatArray, IntArray, typical_steps
from perfguard.records.steps.ops import PYTHON_OP, OpKey

COLD_AFTER_S = 30e-6
"""Time without an event after which the next one is no costlier. From 10 to 100 us it makes little difference to what
is unexplained of an optimizer in small ops, of slower kernels and of a doubled call; with all time, or none, that is
3 % of the step (docs/measurements, culprits)."""

EMPTY_OPS = 0.05
"""Part of the kinds of ops that do next to nothing: what these take for an event is nearly all the profiler's."""


class Overhead(Struct, frozen=True, kw_only=True):
    """Cost of the profiler."""

    event_s: float
    """Seconds for the event of an op, of autograd's engine, or of a plain annotation; 0 without unprofiled steps."""
    module_s: float  # Seconds for the event of a module, with the hooks that open and close it
    own_share: float  # Part of an op's event that lies inside it; the rest is around it
    cold_ratio: float
    """Part of the time between events, of at most `COLD_AFTER_S` each, that is the profiler's beside that."""
    error_ratio: float  # Standard error of all the cost, relative to it; at most 1
    step_ratio: float  # How much longer a profiled step of the baseline takes; nan where unknown


NO_OVERHEAD = Overhead(event_s=0.0, module_s=0.0, own_share=0.0, cold_ratio=0.0, error_ratio=0.0, step_ratio=math.nan)
"""Nothing is known of it, so nothing is taken out."""


class ChargedEvents(NamedTuple):
    """How many events' cost each key's time contains, shape `(steps, keys)`."""

    plain: FloatArray
    """Events that hooks have no part in; over the keys they add up to the step's events but for the modules'."""
    modules: FloatArray  # Events of modules, all of them at places' time in no op


def profiler_cost_s(profile: OpProfile, overhead: Overhead) -> FloatArray:
    """Seconds of the profiler in each key's time, shape `(steps, keys)`; never more than the key has."""
    events_s = _events_cost_s(profile, overhead)
    cost_s: FloatArray = events_s + overhead.cold_ratio * _cooling_s(profile, events_s)
    return cost_s


def _cooling_s(profile: OpProfile, events_s: FloatArray) -> FloatArray:
    """Seconds of each key that make caches colder, shape `(steps, keys)`.

    Up to `COLD_AFTER_S` of each call, and in a place of each piece between two events.
    """
    pieces = np.where(_python(profile.keys), profile.child_events + 1, profile.calls)
    found: FloatArray = np.minimum(profile.self_s - events_s, COLD_AFTER_S * pieces)
    return found


def _events_cost_s(profile: OpProfile, overhead: Overhead) -> FloatArray:
    """What a wrapper that does next to nothing cannot hold is in the other events of its place, as they cost."""
    charged = charged_events(profile, overhead.own_share)
    cost_s = overhead.event_s * charged.plain + overhead.module_s * charged.modules
    held_s = np.minimum(cost_s, profile.self_s)
    places = [(key.phase, key.module) for key in profile.keys]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    place = np.array([numbers[each] for each in places], dtype=np.int64)
    excess_s = _sums(cost_s - held_s, place, len(numbers))
    weights = np.where(held_s < profile.self_s, held_s, 0.0)
    total_s = _sums(weights, place, len(numbers))
    share = np.divide(excess_s, total_s, out=np.zeros_like(excess_s), where=total_s > 0)
    found: FloatArray = np.minimum(held_s + weights * share[:, place], profile.self_s)
    return found


def _python(keys: tuple[OpKey, ...]) -> BoolArray:
    """Which keys are time in no op."""
    return np.array([key.op == PYTHON_OP for key in keys], dtype=np.bool_)


def _sums(values: FloatArray, place: IntArray, places: int) -> FloatArray:
    """Values by place, shape `(steps, places)`."""
    sums = np.zeros((values.shape[0], places))
    np.add.at(sums.T, place, values.T)
    return sums


def charged_events(profile: OpProfile, own_share: float) -> ChargedEvents:
    """Which keys' time contains the cost of events: an op's costs `own_share` in it and the rest in its parent."""
    python = _python(profile.keys)
    ops = np.where(python, 0.0, profile.calls)
    others = np.maximum(profile.events - ops.sum(axis=1), 0.0)[:, np.newaxis]
    # There are never more modules than events beside the ops.
    modules = profile.module_calls.astype(np.float64)
    modules *= np.minimum(1.0, others / np.maximum(modules.sum(axis=1, keepdims=True), 1.0))
    # What is neither an op nor a module lies in places, by how many annotations each has beside the modules'.
    engine = np.zeros_like(ops)
    annotations = np.maximum(profile.calls[:, python] - modules[:, python], 0.0)
    engine[:, python] = (others - modules.sum(axis=1, keepdims=True)) * _shares(annotations)
    # Of the children of places only the ops count here: annotations lie in places, by how many children each has.
    around = profile.child_events.astype(np.float64)
    inside = around[:, python]
    around[:, python] = np.maximum(inside - others * _shares(inside), 0.0)
    return ChargedEvents(plain=own_share * ops + (1 - own_share) * around + engine, modules=modules)


def estimate_overhead(baseline: ArmProfile, candidate: ArmProfile, pairs: ProcessPairs) -> Overhead:
    """The cost that explains how much longer profiled steps take: the median over all processes of both arms.

    Events never cost more than that.
    """
    if not (baseline.has_bare_steps and candidate.has_bare_steps):
        return NO_OVERHEAD
    arms = (baseline, candidate)
    sides = ((baseline, pairs.baseline), (candidate, pairs.candidate))
    event_s = fmean(arm.event_cost.event_s for arm in arms)
    module_s = fmean(arm.event_cost.module_s for arm in arms)
    found = [_longer(arm, processes, event_s=event_s, module_s=module_s) for arm, processes in sides]
    bare_s, longer_s, events_s = np.concatenate(found, axis=1)
    part = float(np.clip(np.median(longer_s / np.maximum(events_s, 1e-12)), 0.0, 1.0))
    # As measured, but no more than the emptiest ops can hold: no op takes less than no time.
    own_share = fmean(arm.event_cost.own_share for arm in arms)
    if part * event_s > 0:
        own_share = min(own_share, *(_emptiest_ops_s(arm.profile) / (part * event_s) for arm in arms))
    ratio = longer_s / bare_s
    known = Overhead(
        event_s=part * event_s,
        module_s=part * module_s,
        own_share=own_share,
        cold_ratio=0.0,
        error_ratio=_error_ratio(ratio),
        step_ratio=float(np.median(ratio[: len(pairs)])),
    )
    cooling_s = []
    for arm, processes in sides:
        of_steps = _cooling_s(arm.profile, _events_cost_s(arm.profile, known)).sum(axis=1)
        cooling_s.append(typical_steps(of_steps, arm.profile.process, processes))
    ratios = (longer_s - part * events_s) / np.maximum(np.concatenate(cooling_s), 1e-12)
    return replace(known, cold_ratio=float(np.clip(np.median(ratios), 0.0, 1.0)))


def _longer(arm: ArmProfile, processes: tuple[int, ...], *, event_s: float, module_s: float) -> FloatArray:
    """Seconds of a step, how much longer it is with the profiler, and what its events cost as measured on empty ones.

    Returns:
        Shape `(3, processes)`.
    """
    bare_s = typical_steps(arm.bare_s, arm.bare_process, processes)
    charged = charged_events(arm.profile, own_share=0.0)
    events_s = event_s * charged.plain.sum(axis=1) + module_s * charged.modules.sum(axis=1)
    measured_s = np.stack([arm.profile.wall_s, events_s], axis=1)
    profiled_s, typical_events_s = typical_steps(measured_s, arm.profile.process, processes).T
    return np.stack([bare_s, profiled_s - bare_s, typical_events_s])


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


def _shares(weights: FloatArray) -> FloatArray:
    """Parts of each row's sum, even where that is 0."""
    total = weights.sum(axis=1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / max(1, weights.shape[1]))
