"""Ops of two arms that belong together although they differ: in tensors, in place, or in what computes them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.op_names import computes
from perfguard.profile.changes.paired_ops import PairedOps
from perfguard.profile.libraries.join import NO_LIBRARY
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey, StepPhase

BEFORE = frozenset({ChangeClass.GONE, ChangeClass.FEWER_CALLS})
"""Changes of an op that the baseline has more of."""
AFTER = frozenset({ChangeClass.NEW, ChangeClass.MORE_CALLS})
"""Changes of an op that the candidate has more of."""
LAYOUT_COPIES = frozenset(
    {"copy_", "clone", "contiguous", "empty_like", "empty_strided", "reorder", "to_mkldnn", "CloneBackward0"}
)
"""Ops that copy a tensor into another memory format, with the allocations for it and autograd's part of it."""
CASTS = frozenset({"copy_", "to", "_to_copy", "type_as", "empty_like", "empty_strided", "ToCopyBackward0"})
"""Ops that copy a tensor into another dtype, likewise."""


class Property(str, Enum):
    """What of its tensors tells an op from its twin."""

    LAYOUT = "layout"
    DTYPE = "dtype"
    SHAPE = "shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One op of one place, on tensors of one kind before and of another kind after."""

    changed: Property
    """The property that changed; of several the gravest: shape before dtype before layout."""
    before: tuple[int, ...]
    """Columns that the baseline has more of, longest first."""
    after: tuple[int, ...]
    """Columns that the candidate has more of, longest first."""
    lost: str
    """`channels_last`, `bf16`; all shapes where these changed."""
    gained: str
    """`contiguous`, `f32`, likewise."""


def find_twins(ops: PairedOps, changes: Sequence[ChangeClass], among: Iterable[int]) -> tuple[Twin, ...]:
    """Twins among the given columns, in the order of their first column.

    A copy of a tensor of another shape is another copy: one that came is no twin of one that went. Nor is an op on
    numbers, such as an optimizer's count of steps, the twin of one on tensors.
    """
    before: dict[Hashable, list[int]] = defaultdict(list)
    after: dict[Hashable, list[int]] = defaultdict(list)
    for column in sorted(among):
        key = ops.keys[column]
        if key.op == PYTHON_OP:
            continue
        if changes[column] in BEFORE:
            before[_place(key), key.op].append(column)
        elif changes[column] in AFTER:
            after[_place(key), key.op].append(column)
    baseline_s, candidate_s = ops.baseline_s.mean(axis=0), ops.candidate_s.mean(axis=0)
    twins = (
        _twin(
            ops,
            tuple(sorted(columns, key=lambda column: -baseline_s[column])),
            tuple(sorted(after[place], key=lambda column: -candidate_s[column])),
        )
        for place, columns in before.items()
        if place in after
    )
    return tuple(twin for twin in twins if twin.changed is not Property.SHAPE or _is_the_same_work(ops, twin))


def _is_the_same_work(ops: PairedOps, twin: Twin) -> bool:
    """Whether an op that has other shapes now may do the same for them as before."""
    before, after = ops.keys[twin.before[0]], ops.keys[twin.after[0]]
    is_copy = before.op.rpartition("::")[2] in LAYOUT_COPIES | CASTS
    return not is_copy and _is_of_numbers(before) == _is_of_numbers(after)


def _is_of_numbers(key: OpKey) -> bool:
    """Whether none of its tensors has a dimension."""
    return set(key.shapes.split()) <= {"[]"}


def _twin(ops: PairedOps, before: tuple[int, ...], after: tuple[int, ...]) -> Twin:
    old, new = [ops.keys[column] for column in before], [ops.keys[column] for column in after]
    if {key.shapes for key in old} != {key.shapes for key in new}:
        changed, (lost, gained) = Property.SHAPE, (old[0].shapes, new[0].shapes)
    elif {key.dtypes for key in old} != {key.dtypes for key in new}:
        changed, (lost, gained) = Property.DTYPE, _words(old[0].dtypes, new[0].dtypes)
    else:
        changed, (lost, gained) = Property.LAYOUT, _words(*_layouts(old, new))
    return Twin(changed=changed, before=before, after=after, lost=lost, gained=gained)


def _layouts(old: Sequence[OpKey], new: Sequence[OpKey]) -> tuple[str, str]:
    """Layouts of the same tensors: the longest op and the twin that has its shapes and dtypes."""
    first = old[0]
    same = [key for key in new if (key.shapes, key.dtypes) == (first.shapes, first.dtypes)]
    return first.layouts, (same or list(new))[0].layouts


def _words(before: str, after: str) -> tuple[str, str]:
    """The commonest word that went and the commonest that came."""
    went, came = Counter(before.split()), Counter(after.split())
    lost, won = went - came, came - went
    return (lost.most_common(1)[0][0], won.most_common(1)[0][0]) if lost and won else (before, after)


def relocated(ops: PairedOps, changes: Sequence[ChangeClass]) -> dict[int, int]:
    """Columns that went away, and where each came back: the same op on the same tensors, called as often.

    Time in no op follows the ops of its place, since it has nothing else to be known by.
    """
    gone = [column for column, change in enumerate(changes) if change is ChangeClass.GONE]
    new = [column for column, change in enumerate(changes) if change is ChangeClass.NEW]
    moves: dict[int, int] = {}
    for identity in (_within_phase, _anywhere):
        moves.update(_matched(ops, _left(ops, gone, set(moves)), _left(ops, new, set(moves.values())), identity))
    moves.update(_python_moves(ops, gone, new, moves))
    return moves


def _within_phase(key: OpKey) -> Hashable:
    return (key.phase, key.op, key.shapes, key.dtypes, key.layouts)


def _anywhere(key: OpKey) -> Hashable:
    return (key.op, key.shapes, key.dtypes, key.layouts)


def _left(ops: PairedOps, columns: Sequence[int], taken: set[int]) -> list[int]:
    return [column for column in columns if column not in taken and ops.keys[column].op != PYTHON_OP]


def _matched(
    ops: PairedOps, gone: Sequence[int], new: Sequence[int], identity: Callable[[OpKey], Hashable]
) -> dict[int, int]:
    """Pairs within each identity, where as many went as came, with the same calls."""
    before: dict[Hashable, list[int]] = defaultdict(list)
    after: dict[Hashable, list[int]] = defaultdict(list)
    for columns, sides in ((gone, before), (new, after)):
        for column in columns:
            sides[identity(ops.keys[column])].append(column)
    moves: dict[int, int] = {}
    for name, origins in before.items():
        targets = after.get(name, [])
        origins.sort(key=lambda column: (ops.baseline_calls[column], ops.keys[column].module))
        targets.sort(key=lambda column: (ops.candidate_calls[column], ops.keys[column].module))
        calls_before = [float(ops.baseline_calls[column]) for column in origins]
        calls_after = [float(ops.candidate_calls[column]) for column in targets]
        if calls_before == calls_after:
            moves.update(zip(origins, targets, strict=True))
    return moves


def _python_moves(ops: PairedOps, gone: Sequence[int], new: Sequence[int], moves: Mapping[int, int]) -> dict[int, int]:
    """Time in no op of a place whose ops mostly went to one other place."""
    votes: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for origin, target in moves.items():
        votes[_place(ops.keys[origin])][_place(ops.keys[target])] += 1
    arrivals = {_place(ops.keys[column]): column for column in new if ops.keys[column].op == PYTHON_OP}
    found: dict[int, int] = {}
    for column in gone:
        key = ops.keys[column]
        if key.op == PYTHON_OP and _place(key) in votes:
            target_place = votes[_place(key)].most_common(1)[0][0]
            if target_place in arrivals:
                found[column] = arrivals.pop(target_place)
    return found


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
    ways: dict[Hashable, set[bool]] = defaultdict(set)
    for column in left | joined:
        ways[_place(ops.keys[column])].add(column in left)
    busy = {_place(ops.keys[column]) for column, change in enumerate(counted) if _is_busy(ops.keys[column], change)}
    doubtful = {
        column
        for column in left | joined
        if len(ways[_place(ops.keys[column])]) > 1
        or _place(ops.keys[column]) in busy
        or not (lost & won).isdisjoint((*changes[column][0], *changes[column][1]))
    }
    return frozenset(changes) - doubtful


def _is_busy(key: OpKey, change: ChangeClass) -> bool:
    return change is not ChangeClass.UNCHANGED and key.op != PYTHON_OP and computes(key.op)


def _place(key: OpKey) -> tuple[StepPhase, str]:
    return key.phase, key.module
