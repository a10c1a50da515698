"""`perfguard profile diff`: two traces taken elsewhere, or two recorded profiles, compared op by op."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from perfguard.errors import UsageError
from perfguard.model.ops import Attribution
from perfguard.profile.arm_profile import ArmProfile, EventCost
from perfguard.profile.attribution import attribute
from perfguard.profile.context import Context, context_of
from perfguard.profile.names import Role, role_of
from perfguard.profile.op_profile import profile_of
from perfguard.profile.trace import Trace, read_trace
from perfguard.units import format_number


def diff_traces(before: Path, after: Path) -> Attribution:
    """Compare two Chrome traces of torch.profiler; nothing says what the profiler cost, so it stays in the times.

    Raises:
        StoreError: A file is no trace.
        MeasurementError: A trace holds no op.
    """
    traces = [_read(path) for path in (before, after)]
    contexts = [context_of(trace) for trace in traces]
    baseline, candidate = (_arm(trace, context) for trace, context in zip(traces, contexts, strict=True))
    attribution = attribute(f"{before.name} → {after.name}", baseline, candidate, ())
    notes = [note for trace in traces for note in trace.notes]
    updates = [_updates_a_step(trace, context) for trace, context in zip(traces, contexts, strict=True)]
    if updates[0] != updates[1]:
        notes.append(
            f"a step of {before.name} holds {format_number(updates[0])} updates of optimizers and one of {after.name} "
            f"{format_number(updates[1])}, so they are not the same work; mark steps alike, with the profiler's step()"
        )
    has_shapes = [any(signature.shapes for signature in trace.signatures) for trace in traces]
    if has_shapes[0] == has_shapes[1]:
        return replace(attribution, notes=tuple(notes))
    named = (before, after)[has_shapes[0]].name
    return replace(
        attribution,
        sentence=f"{named} tells no shapes and the other one does, so no op is the same; record both alike",
        culprits=(),
        notes=tuple(notes),
    )


def _updates_a_step(trace: Trace, context: Context) -> float:
    """How often optimizers update in a step, on average."""
    is_update = np.array([role_of(name) is Role.UPDATE for name in trace.names], dtype=np.bool_)[trace.name]
    return float((is_update & (context.step >= 0)).sum()) / max(1, context.windows.size)


def _read(path: Path) -> Trace:
    if not path.is_file():
        raise UsageError(f"{path} is no file; give two traces that torch.profiler exported (.json or .json.gz)")
    return read_trace(path)


def _arm(trace: Trace, context: Context) -> ArmProfile:
    nothing = np.array([], dtype=np.float64)
    return ArmProfile(
        profile=profile_of(trace, context=context),
        bare_s=nothing,
        bare_thread_s=nothing,
        bare_process=np.array([], dtype=np.int64),
        implementations={},
        event_cost=EventCost(),
    )
