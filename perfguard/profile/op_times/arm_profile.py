"""What was measured of one arm before ops are compared, and which processes of two arms belong together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from perfguard.errors import MeasurementError
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.profile.op_times.typical_steps import FloatArray, IntArray
from perfguard.records.steps.ops import OpKey


class EventCost(Struct, frozen=True, kw_only=True):
    """What the profiler costs, measured on empty events; in a step caches are colder."""

    event_s: float = 0.0  # Seconds for the event of an op; 0 where it is not known
    module_s: float = 0.0  # Seconds for the event of a module, which hooks open and close
    own_share: float = 0.2  # Part of an op's event that falls into the op itself; the rest is its parent's


class ArmProfile(Struct, frozen=True, kw_only=True, eq=False):
    """The profiled and the unprofiled steps of one arm."""

    profile: OpProfile  # Profiled steps
    bare_s: FloatArray = field(default_factory=lambda: np.empty(0))
    """Wall seconds of each unprofiled step, shape `(bare steps,)`; empty for a trace taken elsewhere."""
    bare_thread_s: FloatArray = field(default_factory=lambda: np.empty(0))
    """CPU seconds of the thread that ran the step, likewise."""
    bare_process: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Which process each unprofiled step ran in, numbered as in `profile`."""
    implementations: Mapping[OpKey, tuple[str, ...]] = field(default_factory=dict)
    """What computed an op, as `runners` says, sorted; empty where it is not known of any."""
    event_cost: EventCost = EventCost()  # What the profiler costs for an event, as measured on empty ones

    @property
    def has_bare_steps(self) -> bool:
        """Whether steps were timed without the profiler."""
        return self.bare_s.size > 0


class ProcessPairs(Struct, frozen=True, kw_only=True):
    """Processes of both arms whose steps were interleaved; position i of one belongs to position i of the other."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.baseline)


def pair_processes(baseline: ArmProfile, candidate: ArmProfile) -> ProcessPairs:
    """Processes that have profiled steps in both arms and, where both arms have bare steps at all, these too.

    Two arms of one process each are a pair, whatever the numbers of these.

    Raises:
        MeasurementError: No process is left.
    """
    ours, theirs = (set(arm.profile.process.tolist()) for arm in (baseline, candidate))
    if baseline.has_bare_steps and candidate.has_bare_steps:
        ours &= set(baseline.bare_process.tolist())
        theirs &= set(candidate.bare_process.tolist())
    common = tuple(sorted(ours & theirs))
    if common:
        return ProcessPairs(baseline=common, candidate=common)
    if len(ours) == len(theirs) == 1:
        return ProcessPairs(baseline=tuple(ours), candidate=tuple(theirs))
    raise MeasurementError(
        f"no process was profiled in both arms (baseline: {sorted(ours)}, candidate: {sorted(theirs)}); "
        "look into the logs of the workers, then profile again"
    )
