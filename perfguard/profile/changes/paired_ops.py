"""The ops of two profiles side by side, and which of them belong together although they differ.

They may differ in their tensors, in their place, or in what computes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from perfguard.profile.changes.counted import grouped
from perfguard.profile.changes.op_names import CASTS, computes
from perfguard.profile.libraries.runners import NO_LIBRARY
from perfguard.profile.op_times.arm_profile import ArmProfile, ProcessPairs
from perfguard.profile.op_times.overhead import Overhead, profiler_cost_s
from perfguard.profile.op_times.typical_steps import FloatArray, IntArray, middle_steps, typical_steps
from perfguard.profile.trace.python_lines import changed_line
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

BEFORE = frozenset({ChangeClass.GONE, ChangeClass.FEWER_CALLS})
"""Changes of an op that the baseline has more of."""
AFTER = frozenset({ChangeClass.NEW, ChangeClass.MORE_CALLS})
"""Changes of an op that the candidate has more of."""
LAYOUT_COPIES = frozenset(
    {"copy_", "clone", "contiguous", "empty_like", "empty_strided", "reorder", "to_mkldnn", "CloneBackward0"}
)
"""Ops that copy a tensor into another memory format, with the allocations for it and autograd's part of it."""
DTYPE_COPIES = CASTS | {"empty_like", "empty_strided", "ToCopyBackward0"}
"""Ops that copy a tensor into another dtype, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedOps:
    """Ops of both arms, aligned by their keys, the profiler's cost taken out."""

    keys: tuple[OpKey, ...]
    """The baseline's keys, then those that only the candidate has."""
    baseline_s: FloatArray
    """Seconds in a typical step, shape `(pairs, keys)`; 0 where the arm has no such op. The
    profiler's cost is taken out, as far as the op's time can hold it."""
    candidate_s: FloatArray
    """The same of the candidate."""
    baseline_calls: FloatArray
    """Calls in a step, shape `(keys,)`."""
    candidate_calls: FloatArray
    """The same of the candidate."""
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
        mean: FloatArray = self.baseline_s.mean(axis=0)
        return mean

    @property
    def after_s(self) -> FloatArray:
        """Mean seconds of the candidate, shape `(keys,)`."""
        mean: FloatArray = self.candidate_s.mean(axis=0)
        return mean

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
    # elsewhere whole steps are left out, lest their difference goes where nobody can look for it.
    whole_steps = not (baseline.has_bare_steps and candidate.has_bare_steps)
    seconds, calls, costs_s = zip(
        *(
            _side(arm, processes, keys, overhead, whole_steps=whole_steps)
            for arm, processes in ((baseline, pairs.baseline), (candidate, pairs.candidate))
        ),
        strict=True,
    )
    before, after = calls
    lines = {**baseline.profile.sources, **candidate.profile.sources, **_changed_lines(baseline, candidate)}
    return PairedOps(
        keys=keys,
        baseline_s=seconds[0],
        candidate_s=seconds[1],
        baseline_calls=before.mean(axis=0),
        candidate_calls=after.mean(axis=0),
        count_change=(after.min(axis=0) > before.max(axis=0)).astype(np.int64)
        - (after.max(axis=0) < before.min(axis=0)),
        overhead_error_s=np.abs(costs_s[1] - costs_s[0]) * overhead.error_ratio,
        sources=tuple(lines.get(key) for key in keys),
        implementations=tuple(
            (baseline.implementations.get(key, ()), candidate.implementations.get(key, ())) for key in keys
        ),
    )


def _changed_lines(baseline: ArmProfile, candidate: ArmProfile) -> dict[OpKey, str]:
    before, after = baseline.profile.python_lines, candidate.profile.python_lines
    found = {key: changed_line(before.get(key, {}), after.get(key, {})) for key in {*before, *after}}
    return {key: line for key, line in found.items() if line is not None}


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


class Property(str, Enum):
    """A property of its tensors in which an op may differ from its twin."""

    LAYOUT = "layout"
    DTYPE = "dtype"
    SHAPE = "shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One op of one place, on tensors of one kind before and of another kind after."""

    changed: Property
    """The property that changed; of several the first of shape, dtype and layout."""
    before: tuple[int, ...]
    """Columns that the baseline has more of, longest first."""
    after: tuple[int, ...]
    """Columns that the candidate has more of, longest first."""
    lost: str
    """`channels_last`, `bf16`; all shapes where these changed."""
    gained: str
    """`contiguous`, `f32`, likewise."""

    @property
    def columns(self) -> tuple[int, ...]:
        """All columns."""
        return (*self.before, *self.after)


def find_twins(ops: PairedOps, changes: Sequence[ChangeClass], among: Iterable[int]) -> tuple[Twin, ...]:
    """Twins among the given columns, in the order of their first column.

    A copy of a tensor of another shape is another copy: one that came is no twin of one that went. Nor is an op on
    numbers, such as an optimizer's count of steps, the twin of one on tensors.
    """
    columns = [column for column in sorted(among) if not ops.is_python(column)]

    def by_op(side: frozenset[ChangeClass], seconds: FloatArray) -> dict[Hashable, list[int]]:
        there = sorted((column for column in columns if changes[column] in side), key=lambda column: -seconds[column])
        return grouped(there, lambda column: (ops.place(column), ops.keys[column].op))

    before, after = by_op(BEFORE, ops.before_s), by_op(AFTER, ops.after_s)
    names = sorted(before.keys() & after.keys(), key=lambda name: min(before[name]))
    twins = (_twin(ops, tuple(before[name]), tuple(after[name])) for name in names)
    return tuple(twin for twin in twins if twin.changed is not Property.SHAPE or _is_the_same_work(ops, twin))


def _is_the_same_work(ops: PairedOps, twin: Twin) -> bool:
    """Whether an op that has other shapes now may do the same for them as before."""
    before, after = ops.keys[twin.before[0]], ops.keys[twin.after[0]]
    return short_op(before) not in LAYOUT_COPIES | DTYPE_COPIES and _is_of_numbers(before) == _is_of_numbers(after)


def _is_of_numbers(key: OpKey) -> bool:
    """Whether none of its tensors has a dimension."""
    return set(key.shapes.split()) <= {"[]"}


def _twin(ops: PairedOps, before: tuple[int, ...], after: tuple[int, ...]) -> Twin:
    old, new = [ops.keys[column] for column in before], [ops.keys[column] for column in after]
    first = old[0]
    if {key.shapes for key in old} != {key.shapes for key in new}:
        changed, (lost, gained) = Property.SHAPE, (first.shapes, new[0].shapes)
    elif {key.dtypes for key in old} != {key.dtypes for key in new}:
        changed, (lost, gained) = Property.DTYPE, _words(first.dtypes, new[0].dtypes)
    else:
        alike = [key for key in new if (key.shapes, key.dtypes) == (first.shapes, first.dtypes)]
        changed, (lost, gained) = Property.LAYOUT, _words(first.layouts, (alike or new)[0].layouts)
    return Twin(changed=changed, before=before, after=after, lost=lost, gained=gained)


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


def implementation_change(ops: PairedOps, column: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Implementations that went, and those that came; both empty unless the op has some of each.

    A call that could not be placed in the trace is missing from one arm. It must not look like a change, so it takes
    one that went and one that came. Where all calls are known, `NO_LIBRARY` may be one of them.
    """
    before, after = ops.implementations[column]
    went, came = tuple(sorted({*before} - {*after})), tuple(sorted({*after} - {*before}))
    return (went, came) if went and came else ((), ())


def implementation_changes(ops: PairedOps, counted: Sequence[ChangeClass]) -> frozenset[int]:
    """Columns of ops that are computed otherwise.

    An op that left the libraries, or came to one, counts only where nothing beside it took over: no op at its place is
    called more or less often, none went the other way there, and none anywhere took on what it lost. Else a callee may
    do its work now, or a call of the library was placed in another op than in the other arm.

    Args:
        ops: Both arms.
        counted: What the numbers of calls say of each op.
    """
    changes = {column: implementation_change(ops, column) for column in range(len(ops.keys))}
    changes = {column: change for column, change in changes.items() if change[0]}
    left = {column for column, (_, came) in changes.items() if came == (NO_LIBRARY,)}
    joined = {column for column, (went, _) in changes.items() if went == (NO_LIBRARY,)}
    lost = {name for column in left for name in changes[column][0]}
    won = {name for column in joined for name in changes[column][1]}
    busy = {
        ops.place(column)
        for column, change in enumerate(counted)
        if change is not ChangeClass.UNCHANGED and not ops.is_python(column) and computes(ops.keys[column].op)
    }
    busy |= {ops.place(column) for column in left} & {ops.place(column) for column in joined}
    doubtful = {
        column
        for column in left | joined
        if ops.place(column) in busy or not (lost & won).isdisjoint((*changes[column][0], *changes[column][1]))
    }
    return frozenset(changes) - doubtful
