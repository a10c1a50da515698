"""Ops that stayed at their place while their tensors became others: in layout, dtype or shape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.paired_ops import PairedOps
from perfguard.records.steps.ops import PYTHON_OP, ChangeClass, OpKey

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
    label: str
    """`channels_last → contiguous`, `bf16 → f32`; whole shapes where these changed."""


def find_twins(ops: PairedOps, changes: Sequence[ChangeClass], among: Iterable[int]) -> tuple[Twin, ...]:
    """Twins among the given columns, in the order of their first column.

    A copy of a tensor of another shape is another copy: one that came is no twin of one that went. Nor is an op on
    numbers, such as an optimizer's count of steps, the twin of one on tensors.
    """
    before: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    after: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for column in sorted(among):
        key = ops.keys[column]
        if key.op == PYTHON_OP:
            continue
        if changes[column] in BEFORE:
            before[key.phase.value, key.module, key.op].append(column)
        elif changes[column] in AFTER:
            after[key.phase.value, key.module, key.op].append(column)
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
        changed, label = Property.SHAPE, f"{old[0].shapes} → {new[0].shapes}"
    elif {key.dtypes for key in old} != {key.dtypes for key in new}:
        changed, label = Property.DTYPE, _words(old[0].dtypes, new[0].dtypes)
    else:
        changed, label = Property.LAYOUT, _words(*_layouts(old, new))
    return Twin(changed=changed, before=before, after=after, label=label)


def _layouts(old: Sequence[OpKey], new: Sequence[OpKey]) -> tuple[str, str]:
    """Layouts of the same tensors: the longest op and the twin that has its shapes and dtypes."""
    first = old[0]
    same = [key for key in new if (key.shapes, key.dtypes) == (first.shapes, first.dtypes)]
    return first.layouts, (same or list(new))[0].layouts


def _words(before: str, after: str) -> str:
    """The commonest word that went and the commonest that came."""
    went, came = Counter(before.split()), Counter(after.split())
    lost, won = went - came, came - went
    if not lost or not won:
        return f"{before} → {after}"
    return f"{lost.most_common(1)[0][0]} → {won.most_common(1)[0][0]}"
