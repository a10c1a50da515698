"""Two arms whose ops differ by exact amounts: sums and products of a few units have no rounding errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.records.steps.ops import OpKey

UNIT_S = 2.0**-10
STEP = 1000
"""Units that a step of the baseline takes without the profiler. Ops hold less, so the profiler costs nothing."""
PROCESSES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One op in both arms; times in units."""

    key: OpKey
    calls: tuple[int | tuple[int, ...], int | tuple[int, ...]] = (1, 1)
    """In a step of the baseline and of the candidate; of each process, where these differ."""
    before: float = 32
    more: float = 0
    """What the candidate takes longer, in the mean over its processes."""
    scatter: float = 0
    """By how much that varies: in every second process it is more, in the others less."""


def exact_arms(timed, *, step_more=0.0, step_scatter=0.0, processes=PROCESSES, lines=None):
    """Both arms, of one profiled and one unprofiled step a process. The steps' times are independent of the ops'."""
    turn = np.array([(-1) ** number for number in range(processes)]) if processes > 1 else np.zeros(1)
    baseline = [(op.key, op.calls[0], op.before + 0 * turn) for op in timed if op.calls[0]]
    candidate = [(op.key, op.calls[1], op.before + op.more + op.scatter * turn) for op in timed if op.calls[1]]
    return (
        _arm(baseline, STEP + 0 * turn, lines or {}),
        _arm(candidate, STEP + step_more + step_scatter * turn, lines or {}),
    )


def _arm(rows, steps, lines):
    keys, calls, times = zip(*rows, strict=True)
    self_s = np.stack(times, axis=1) * UNIT_S
    processes = np.arange(steps.size)
    return ArmProfile(
        profile=OpProfile(
            keys=keys,
            calls=np.stack([np.broadcast_to(count, steps.size) for count in calls], axis=1),
            module_calls=np.zeros(self_s.shape, dtype=int),
            child_events=np.zeros(self_s.shape, dtype=int),
            self_s=self_s,
            wall_s=self_s.sum(axis=1),
            process=processes,
            sources=lines,
        ),
        bare_s=steps * UNIT_S,
        bare_thread_s=steps * UNIT_S,
        bare_process=processes,
    )
