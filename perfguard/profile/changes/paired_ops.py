"""The ops of two profiles side by side, and which of them belong together although they differ.

They may differ in their tensors, in their place, or in what computes them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct

from perfguard.profile.changes.counted import grouped
from perfguard.profile.changes.op_names import CASTS
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.overhead import Overhead, profiler_cost_s
from perfguard.profile.op_times.typical_steps import FloatArray, IntArray, middle_steps, typical_steps
from perfguard.profile.trace.op_spans import changed_line
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

BEFORE = frozenset({ChangeClass.GONE, ChangeClass.FEWER_CALLS})
"""Changes of an op that the baseline has more of."""
AFTER = frozenset({ChangeClass.NEW, ChangeClass.MORE_CALLS})  # Changes of an op that the candidate has more of
LAYOUT_COPIES = frozenset(
    {"copy_", "clone", "contiguous", "empty_like", "empty_strided", "reorder", "to_mkldnn", "CloneBackward0"}
)
"""Ops that copy a tensor into another memory format, with the allocations for it and autograd's part of it."""
DTYPE_COPIES = CASTS | {"empty_like", "empty_strided", "ToCopyBackward0"}
"""Ops that copy a tensor into another dtype, likewise."""


class PairedOps(Struct, frozen=True, kw_only=True, eq=False):
    """Ops of both arms, aligned by their keys, the profiler's cost taken out."""

    keys: tuple[OpKey, ...]  # The baseline's keys, then those that only the candidate has
    baseline_s: FloatArray
    candidate_s: FloatArray  # Seconds in a typical step, shape `(pairs, keys)`; 0 where the arm has no such op
    baseline_calls: FloatArray
    candidate_calls: FloatArray  # Calls in a step, shape `(keys,)`
    count_change: IntArray
    """1 where every step of the candidate has more calls than any of the baseline, -1 where fewer, else 0."""
    overhead_error_s: FloatArray
    """Standard error of each key's difference that comes from the profiler's cost, shape `(keys,)`."""
    sources: tuple[str | None, ...]
    """Line of the user's code, by key; the candidate's where it has one. Of time in no op, the line that changed."""
    implementations: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """What computed each key, before and after, as `runners` says; empty where unknown."""

    @property
    def deltas_s(self) -> FloatArray:
        """Candidate minus baseline, shape `(pairs, keys)`."""
        return self.candidate_s - self.baseline_s

    @property
    def before_s(self) -> FloatArray:
        """Mean seconds of the baseline, shape `(keys,)`."""
        return np.asarray(self.baseline_s.mean(axis=0))

    @property
    def after_s(self) -> FloatArray:
        """Mean seconds of the candidate, shape `(keys,)`."""
        return np.asarray(self.candidate_s.mean(axis=0))

    def place(self, column: int) -> tuple[StepPhase, str]:
        """Phase and module of an op."""
        return self.keys[column].phase, self.keys[column].module

    def is_python(self, column: int) -> bool:
        """Whether the column holds time in no op."""
        return self.keys[column].op == PYTHON_OP


def pair_ops(baseline: ArmProfile, candidate: ArmProfile, pairs: ProcessPairs, overhead: Overhead) -> PairedOps:
    """Align two arms by phase, module, op, shapes, dtypes and layouts, and take the profiler's cost out."""
    keys = tuple(dict.fromkeys((*baseline.profile.keys, *candidate.profile.keys)))
    # Where steps without the profiler say what a step takes, what is left out of ops is unexplained. Of traces taken
    # elsewhere whole steps are left out, so that their difference is not hidden in them.
    whole_steps = not (baseline.has_bare_steps and candidate.has_bare_steps)
    before_s, before, cost_before_s = _side(baseline, pairs.baseline, keys, overhead, whole_steps=whole_steps)
    after_s, after, cost_after_s = _side(candidate, pairs.candidate, keys, overhead, whole_steps=whole_steps)
    lines = {**baseline.profile.sources, **candidate.profile.sources, **_changed_lines(baseline, candidate)}
    return PairedOps(
        keys=keys,
        baseline_s=before_s,
        candidate_s=after_s,
        baseline_calls=before.mean(axis=0),
        candidate_calls=after.mean(axis=0),
        count_change=(after.min(axis=0) > before.max(axis=0)).astype(np.int64)
        - (after.max(axis=0) < before.min(axis=0)),
        overhead_error_s=np.abs(cost_after_s - cost_before_s) * overhead.error_ratio,
        sources=tuple(lines.get(key) for key in keys),
        implementations=tuple(
            (baseline.implementations.get(key, ()), candidate.implementations.get(key, ())) for key in keys
        ),
    )


def _changed_lines(baseline: ArmProfile, candidate: ArmProfile) -> dict[OpKey, str]:
    before, after = baseline.profile.python_lines, candidate.profile.python_lines
    lines = ((key, changed_line(before.get(key, {}), after.get(key, {}))) for key in {*before, *after})
    return {key: line for key, line in lines if line is not None}


def _side(
    arm: ArmProfile, processes: tuple[int, ...], keys: Sequence[OpKey], overhead: Overhead, *, whole_steps: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds by process, calls by step, and the profiler's mean cost, in the columns of both arms."""
    profile = arm.profile
    cost_s = profiler_cost_s(profile, overhead)
    self_s, process = profile.self_s - cost_s, profile.process
    if whole_steps:
        chosen = middle_steps(profile.wall_s, process)
        seconds = np.stack([self_s[chosen & (process == number)].mean(axis=0) for number in processes])
    else:
        seconds = typical_steps(self_s, process, processes)
    column_of = {key: column for column, key in enumerate(keys)}
    columns = [column_of[key] for key in profile.keys]

    def spread(values: FloatArray) -> FloatArray:
        wide = np.zeros((*values.shape[:-1], len(keys)))
        wide[..., columns] = values
        return wide

    return spread(seconds), spread(profile.calls.astype(np.float64)), spread(cost_s.mean(axis=0))


class CauseKind(str, Enum):
    """Why ops form one cause; those that bring others with them first."""

    OPTIMIZER = "optimizer"  # They belong to one optimizer
    LAYOUT = "layout"  # Their tensors have another memory format, or they copy tensors for that
    DTYPE = "dtype"  # Their tensors have another dtype, or they cast tensors for that
    SHAPE = "shape"  # Their tensors have other shapes
    IMPLEMENTATION = "implementation"
    """Libraries run them with other kernels, of the same ISA before and of the same ISA after; or one side has none."""
    CALLS = "calls"  # Their places are called more or less often, by the same factor
    REPLACED = "replaced"  # They came or went at their place, in the same manner in all of its places
    TIME = "time"  # The same op in one phase, executed as before, takes another time


class Certainty(Enum):
    """What a cause rests on."""

    EXACT = "exact"  # On counts or on what the library chose: a fact. Its cost is an estimate all the same.
    SIGNIFICANT = "significant"  # Each of its ops differs significantly
    OPEN = "open"  # On nothing yet: its sum is still to be tested


class Cause(Struct, frozen=True, kw_only=True):
    """Ops that changed together, and what that costs once it is weighed."""

    kind: CauseKind
    certainty: Certainty
    columns: tuple[int, ...]
    """Columns of the ops; not empty, of no other cause. Of a weighed cause, those first that drive it most."""
    lost: str = ""  # `Adam`, `channels_last`, `avx512_core`; empty where the kind has none
    gained: str = ""  # What took its place: `SGD`, `contiguous`, `avx2`; the same for an optimizer that stayed
    delta_s: float = 0.0
    lower_s: float = -math.inf
    upper_s: float = math.inf
    """Seconds in a step, candidate minus baseline, with the 95 % interval; infinite where it is unknown."""
    p: float = 1.0  # Two-sided, of H0 `no difference`; 1 where nothing can be said

    @property
    def is_exact(self) -> bool:
        """Whether the change is a fact."""
        return self.certainty is Certainty.EXACT

    @property
    def is_significant(self) -> bool:
        """Whether its own interval excludes 0."""
        return self.lower_s > 0 or self.upper_s < 0

    @property
    def is_within_noise(self) -> bool:
        """Whether its own interval includes 0; not where there is none."""
        return math.isfinite(self.upper_s) and not self.is_significant


def find_twins(ops: PairedOps, changes: Sequence[ChangeClass], among: Iterable[int]) -> list[Cause]:
    """One op of one place, on tensors of one kind before and of another kind after; in the order of the first columns.

    Of several properties that changed, the first of shape, dtype and layout counts. Columns are the baseline's and then
    the candidate's, the longest first; `lost` and `gained` are two layouts, two dtypes, or all shapes.

    A copy of a tensor of another shape is another copy: one that came is no twin of one that went. Nor is an op on
    numbers, such as an optimizer's count of steps, the twin of one on tensors.
    """
    columns = [column for column in sorted(among) if not ops.is_python(column)]

    def by_op(side: frozenset[ChangeClass], seconds: FloatArray) -> dict[Hashable, list[int]]:
        there = sorted((column for column in columns if changes[column] in side), key=lambda column: -seconds[column])
        return grouped(there, lambda column: (ops.place(column), ops.keys[column].op))

    before, after = by_op(BEFORE, ops.before_s), by_op(AFTER, ops.after_s)
    names = sorted(before.keys() & after.keys(), key=lambda name: min(before[name]))
    return [twin for name in names if (twin := _twin(ops, before[name], after[name])) is not None]


def _twin(ops: PairedOps, before: list[int], after: list[int]) -> Cause | None:
    old, new = [ops.keys[column] for column in before], [ops.keys[column] for column in after]
    first = old[0]
    if {key.shapes for key in old} != {key.shapes for key in new}:
        are_of_numbers = {set(key.shapes.split()) <= {"[]"} for key in (first, new[0])}  # no tensor has a dimension
        if short_op(first) in LAYOUT_COPIES | DTYPE_COPIES or len(are_of_numbers) > 1:
            return None
        kind, (lost, gained) = CauseKind.SHAPE, (first.shapes, new[0].shapes)
    elif {key.dtypes for key in old} != {key.dtypes for key in new}:
        kind, (lost, gained) = CauseKind.DTYPE, _words(first.dtypes, new[0].dtypes)
    else:
        alike = [key for key in new if (key.shapes, key.dtypes) == (first.shapes, first.dtypes)]
        kind, (lost, gained) = CauseKind.LAYOUT, _words(first.layouts, (alike or new)[0].layouts)
    columns = (*before, *after)
    return Cause(kind=kind, certainty=Certainty.EXACT, columns=columns, lost=lost, gained=gained)


def _words(before: str, after: str) -> tuple[str, str]:
    """The commonest word that went and the commonest that came."""
    went, came = Counter(before.split()), Counter(after.split())
    lost, won = went - came, came - went
    return (lost.most_common(1)[0][0], won.most_common(1)[0][0]) if lost and won else (before, after)


def short_op(key: OpKey) -> str:
    """`mul_` for `aten::mul_`."""
    return key.op.rpartition("::")[2]


def relocated(ops: PairedOps, changes: Sequence[ChangeClass]) -> dict[int, int]:
    """Columns that went away, and where each came back: the same op on the same tensors, called as often.

    Time in no op follows the ops of its place, since it has nothing else to be known by.
    """
    gone, new = (
        [column for column, found in enumerate(changes) if found is change]
        for change in (ChangeClass.GONE, ChangeClass.NEW)
    )
    moves: dict[int, int] = {}
    for within_phase in (True, False):
        moves.update(_matched(ops, set(gone) - set(moves), set(new) - set(moves.values()), within_phase=within_phase))
    # Time in no op of a place goes where most of its ops went.
    votes: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for origin, target in moves.items():
        votes[ops.place(origin)][ops.place(target)] += 1
    arrivals: dict[Hashable, int] = {ops.place(column): column for column in new if ops.is_python(column)}
    for column in gone:
        if ops.is_python(column) and ops.place(column) in votes:
            place = votes[ops.place(column)].most_common(1)[0][0]
            if place in arrivals:
                moves[column] = arrivals.pop(place)
    return moves


def _matched(ops: PairedOps, gone: Iterable[int], new: Iterable[int], *, within_phase: bool) -> dict[int, int]:
    """Pairs of equal ops, where as many went as came, with the same calls."""

    def by_op(columns: Iterable[int], calls: FloatArray) -> dict[Hashable, list[int]]:
        there = (column for column in columns if not ops.is_python(column))
        ordered = sorted(there, key=lambda column: (calls[column], ops.keys[column].module, column))
        return grouped(ordered, identity)

    def identity(column: int) -> Hashable:
        key = ops.keys[column]
        return (key.phase if within_phase else None, key.op, key.shapes, key.dtypes, key.layouts)

    before, after = by_op(gone, ops.baseline_calls), by_op(new, ops.candidate_calls)
    moves: dict[int, int] = {}
    for name in sorted(before.keys() & after.keys(), key=lambda name: min(before[name])):
        origins, targets = before[name], after[name]
        if ops.baseline_calls[origins].tolist() == ops.candidate_calls[targets].tolist():
            moves.update(zip(origins, targets, strict=True))
    return moves
