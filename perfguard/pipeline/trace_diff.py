"""`perfguard profile diff`: two traces taken elsewhere, or two recorded profiles, compared op by op."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfguard.errors import UsageError
from perfguard.model.ops import Attribution
from perfguard.profile.arm_profile import ArmProfile, EventCost
from perfguard.profile.attribution import attribute
from perfguard.profile.op_profile import profile_of
from perfguard.profile.trace import read_trace


def diff_traces(before: Path, after: Path) -> Attribution:
    """Compare two Chrome traces of torch.profiler; nothing says what the profiler cost, so it stays in the times.

    Raises:
        StoreError: A file is no trace.
        MeasurementError: A trace holds no op.
    """
    baseline, candidate = (_arm(path) for path in (before, after))
    return attribute(f"{before.name} → {after.name}", baseline, candidate, ())


def _arm(path: Path) -> ArmProfile:
    if not path.is_file():
        raise UsageError(f"{path} is no file; give two traces that torch.profiler exported (.json or .json.gz)")
    nothing = np.array([], dtype=np.float64)
    return ArmProfile(
        profile=profile_of(read_trace(path)),
        bare_s=nothing,
        bare_thread_s=nothing,
        bare_process=np.array([], dtype=np.int64),
        implementations={},
        event_cost=EventCost(),
    )
