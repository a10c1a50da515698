"""`perfguard profile diff`: two traces taken elsewhere, or two recorded profiles, compared op by op."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfguard.errors import UsageError
from perfguard.profile.changes.attribution import attribute
from perfguard.profile.op_times.arm_profile import ArmProfile
from perfguard.profile.op_times.op_profile import OpProfile, profile_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.names import EventRole, role_of
from perfguard.profile.trace.trace import read_trace
from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.steps.ops import Attribution

WORTH_A_PROCESS_BYTES = 40_000_000
"""Of text in the smaller trace. Another process must start and import numpy first, which small traces do not repay."""
_PACKED = 20  # Bytes of text in a byte of gzip, roughly
_GZIP_MAGIC = b"\x1f\x8b"


class _ReadTrace(Struct, frozen=True, kw_only=True, eq=False):
    """What is compared of a trace; its events are not kept."""

    profile: OpProfile
    updates: float  # Updates of optimizers in a step, on average
    has_shapes: bool  # Whether any op has the shapes of its tensors
    notes: tuple[Fact, ...]


def diff_traces(before: Path, after: Path) -> Attribution:
    """Compare two Chrome traces of torch.profiler; nothing says what the profiler cost, so it stays in the times.

    Large ones are read side by side, where there are CPUs for that.

    Raises:
        StoreError: A file is no trace.
        MeasurementError: A trace holds no op.
    """
    for path in (before, after):
        if not path.is_file():
            raise UsageError(f"{path} is no file; give two traces that torch.profiler exported (.json or .json.gz)")
    traces = _read_side_by_side(before, after) if _is_worth_a_process(before, after) else (_read(before), _read(after))
    baseline, candidate = (ArmProfile(profile=trace.profile) for trace in traces)
    attribution = attribute(f"{before.name} → {after.name}", baseline, candidate)
    notes = [*attribution.notes, *(note for trace in traces for note in trace.notes)]
    updates, updates_after = (trace.updates for trace in traces)
    if updates != updates_after:
        names = {"before": before.name, "after": after.name}
        notes.append(
            fact("trace.other_updates", names, severity=Severity.NOTABLE, updates=updates, updates_after=updates_after)
        )
    if traces[0].has_shapes == traces[1].has_shapes:
        return replace(attribution, notes=tuple(notes))
    named = (before, after)[traces[0].has_shapes].name
    notes.insert(0, fact("trace.no_shapes", severity=Severity.GRAVE, trace=named))
    return replace(attribution, culprits=(), notes=tuple(notes))


def _is_worth_a_process(before: Path, after: Path) -> bool:
    return len(os.sched_getaffinity(0)) > 1 and min(map(_text_bytes, (before, after))) >= WORTH_A_PROCESS_BYTES


def _text_bytes(path: Path) -> int:
    """Roughly how much text a trace holds; 0 for one that cannot be opened, which reading it will say."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            return os.fstat(file.fileno()).st_size * (_PACKED if packed else 1)
    except OSError:
        return 0


def _read_side_by_side(before: Path, after: Path) -> tuple[_ReadTrace, _ReadTrace]:
    # Not forked: numpy may have threads, and a fork with threads may hang.
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        coming = pool.submit(_read, after)
        first = _read(before)
        try:
            return first, coming.result()
        except BrokenProcessPool:  # it was killed, perhaps for its memory; one after the other needs less
            return first, _read(after)


def _read(path: Path) -> _ReadTrace:
    trace = read_trace(path)
    context = context_of(trace)
    is_update = np.array([role_of(name) is EventRole.UPDATE for name in trace.names], dtype=np.bool_)[trace.name]
    return _ReadTrace(
        profile=profile_of(trace, context=context),
        updates=float((is_update & (context.step >= 0)).sum()) / max(1, context.windows.size),
        has_shapes=any(signature.shapes for signature in trace.signatures),
        notes=trace.notes,
    )
