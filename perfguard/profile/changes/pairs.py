"""Calls that became other calls: of another implementation, memory layout, dtype or shape, with the copies this takes.

Calls pair up from the closest likeness to the loosest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from perfguard.profile.changes.counted import (
    Change,
    ChangeRule,
    Pair,
    Place,
    Residue,
    RowKey,
    StepCounts,
    calls_by,
    changed,
    grouped,
    phases_of,
    ranked,
)
from perfguard.profile.changes.movements import around, more_or_fewer, take_movements
from perfguard.profile.changes.op_names import CASTS, REORDER, computes, is_minor, leading, short
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.details import channels_last_of, dtypes_of, op_detail, primitive_detail
from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind

_SEVERITY: Mapping[Turn, Severity] = {
    Turn.FALLBACK: Severity.GRAVE,
    Turn.LOWER: Severity.NOTABLE,
    Turn.SIDEWAYS: Severity.NOTABLE,
    Turn.HIGHER: Severity.INFO,
    Turn.RECOVERED: Severity.INFO,
}


def _tensors(row: RowKey) -> tuple[str, str]:
    detail = op_detail(row.detail)
    return detail.shapes, detail.dtypes


def _problem(row: RowKey) -> tuple[str, str]:
    detail = primitive_detail(row.detail)
    return detail.problem, detail.attributes


_LIKENESSES: Sequence[tuple[OpCountKind, Callable[[RowKey], Hashable]]] = (
    (OpCountKind.OP, _tensors),
    (OpCountKind.OP, lambda row: _tensors(row)[0]),
    (OpCountKind.OP, lambda _: None),
    (OpCountKind.PRIMITIVE, lambda row: (_problem(row), row.implementation)),
    (OpCountKind.PRIMITIVE, lambda row: _problem(row)[0]),
    (OpCountKind.PRIMITIVE, lambda row: row.implementation),
    (OpCountKind.PRIMITIVE, lambda _: None),
)
"""What calls of one name at one place must have in common to be paired, the closest likeness first."""


class Account(Struct, frozen=True, kw_only=True):
    """Pairs as a change counts them."""

    counts: StepCounts
    """Of leading ops, before as after: a wrapper and what it calls are one. Of primitives, where no op differs."""
    values: Mapping[str, Value]
    """What a fact says of them; ops of the earliest phase first, whose names people know, then the most frequent."""
    rows: frozenset[RowKey]
    places: frozenset[Place]


def account_of(pairs: Iterable[Pair]) -> Account:
    """Count pairs, at least one."""
    pairs = list(pairs)
    telling, earliest = _telling(pairs)
    are_ops = telling[0].lost.kind is OpCountKind.OP
    calls = _leading_calls(telling) if are_ops else calls_by(telling, _name)
    early = set(map(_name, earliest))
    names = tuple(sorted(ranked(calls), key=lambda name: name not in early))
    rows, total = frozenset(row for pair in pairs for row in (pair.lost, pair.gained)), calls.total()
    return Account(
        counts=StepCounts(before=total, after=total),
        values={f"affected_{'ops' if are_ops else 'primitives'}": total, "ops": names},
        rows=rows,
        places=frozenset(row.place for row in rows),
    )


def _telling(pairs: Sequence[Pair]) -> tuple[Sequence[Pair], Sequence[Pair]]:
    """Pairs of ops that compute, else of any ops, else of primitives; and of these the ones in the earliest phase."""
    ops = [pair for pair in pairs if pair.lost.kind is OpCountKind.OP]
    telling = [pair for pair in ops if computes(pair.lost.name)] or ops or pairs
    first = phases_of(pair.lost.place for pair in telling)[0]
    return telling, [pair for pair in telling if pair.lost.place.phase is first]


def _leading_calls(pairs: Sequence[Pair]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for there in grouped(pairs, lambda pair: frozenset({pair.lost.place, pair.gained.place})).values():
        counted = calls_by(there, lambda pair: pair.lost.name)
        for op in leading(counted):
            calls[short(op)] += counted[op]
    return calls


def _name(pair: Pair) -> str:
    return short(pair.lost.name) if pair.lost.kind is OpCountKind.OP else pair.lost.name.split()[0]


def pair_changes(residue: Residue, *, minor: bool = False) -> list[Change]:
    """Changes of ops and primitives that are paired at each place.

    Reorders are only paired where nothing but their implementation differs: between which layouts they lead is a matter
    of its own. `minor` ops that only make and describe tensors are paired later: they follow others, if there are any.
    """
    pairs: list[Pair] = []
    for kind, like in _LIKENESSES:
        rows = [row for row in residue.open(kind) if row.name not in {REORDER, CACHE_MISS}]
        rows = [row for row in rows if minor or kind is not OpCountKind.OP or not is_minor(row.name)]
        pairs += residue.pair(rows, partial(_likeness, like))
    reorders = [row for row in residue.open(OpCountKind.PRIMITIVE) if row.name == REORDER]
    pairs += residue.pair(reorders, lambda row: (row.place, row.detail))
    by_rule = grouped(pairs, _difference)
    return [
        *_implementations(by_rule.get(ChangeRule.IMPLEMENTATION, ())),
        *_layouts(residue, by_rule.get(ChangeRule.LAYOUT, ())),
        *_dtypes(residue, by_rule.get(ChangeRule.DTYPE, ())),
        *_shapes(residue, by_rule.get(ChangeRule.SHAPES, ())),
    ]


def _likeness(like: Callable[[RowKey], Hashable], row: RowKey) -> Hashable:
    return row.place, row.name, like(row)


def _difference(pair: Pair) -> ChangeRule:
    """What differs between the two calls of a pair; where it is several things, the one that explains the others."""
    lost, gained = pair.lost, pair.gained
    if lost.kind is OpCountKind.OP:
        (shapes, dtypes), (shapes_after, dtypes_after) = _tensors(lost), _tensors(gained)
        same_shapes = ChangeRule.DTYPE if dtypes != dtypes_after else ChangeRule.LAYOUT
        return ChangeRule.SHAPES if shapes != shapes_after else same_shapes
    # A fallback is a change of its own, whatever led to it.
    if turn_of(lost.implementation, gained.implementation) in {Turn.FALLBACK, Turn.RECOVERED}:
        return ChangeRule.IMPLEMENTATION
    was, now = primitive_detail(lost.detail), primitive_detail(gained.detail)
    if was.problem == now.problem and was.channels_last != now.channels_last:
        return ChangeRule.LAYOUT
    if was.problem == now.problem and was.dtypes != now.dtypes:
        return ChangeRule.DTYPE
    if lost.implementation != gained.implementation or was.attributes != now.attributes:
        return ChangeRule.IMPLEMENTATION
    return ChangeRule.SHAPES if was.problem != now.problem else ChangeRule.LAYOUT


def _implementations(pairs: Sequence[Pair]) -> Iterable[Change]:
    """One change for all choices of a primitive that turned the same way: a capped ISA changes dozens of them."""

    def turn(pair: Pair) -> tuple[str, Turn]:
        return _name(pair), turn_of(pair.lost.implementation, pair.gained.implementation)

    for (primitive, turned), group in grouped(pairs, turn).items():
        account = account_of(group)
        (lost, gained), *others = _choices_of(group)
        values: dict[str, Value] = {"primitive": primitive, "lost": lost, "gained": gained}
        values |= {"others": len(others) or None, "calls": account.counts.after}
        yield changed(
            ChangeRule.IMPLEMENTATION,
            "implementation.changed",
            account.rows,
            account.counts,
            values,
            severity=_SEVERITY[turned],
        )


def _choices_of(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    """`brg_conv_fwd:avx512_core` and `jit:avx2` for each pair of choices, the most frequent first."""

    def choice(pair: Pair) -> tuple[str, str]:
        lost, gained = (row.implementation or "none" for row in (pair.lost, pair.gained))
        if lost != gained:
            return lost, gained
        was, now = (primitive_detail(row.detail).attributes or "no attributes" for row in (pair.lost, pair.gained))
        return was, now

    return ranked(calls_by(pairs, choice))


def _layouts(residue: Residue, pairs: Sequence[Pair]) -> list[Change]:
    """One change for all that lost channels_last, one for all that gained it, one for all other layouts."""

    def direction(pair: Pair) -> int:
        before, after = (channels_last_of(row.kind, row.detail) for row in (pair.lost, pair.gained))
        return (after > before) - (after < before)

    return [_layout(residue, group, sign) for sign, group in sorted(grouped(pairs, direction).items())]


def _layout(residue: Residue, pairs: Sequence[Pair], direction: int) -> Change:
    account = account_of(pairs)
    rows, values, calls = account.rows, dict(account.values), account.counts.after
    if direction:
        moved, more = take_movements(residue, around(account.places))
        rows, values = rows | more, values | moved
        kernels = _choices_of(pair for pair in pairs if pair.lost.implementation != pair.gained.implementation)
        if kernels:
            values["kernel_lost"], values["kernel_gained"] = kernels[0]
    values["lost"], values["gained"] = _layout_change(pairs)
    return changed(
        ChangeRule.LAYOUT,
        {-1: "layout.lost", 0: "layout.changed", 1: "layout.gained"}[direction],
        rows,
        StepCounts(before=0 if direction > 0 else calls, after=0 if direction < 0 else calls),
        values,
        places=account.places,
        severity=Severity.INFO if direction > 0 else Severity.NOTABLE,
    )


def _layout_change(pairs: Sequence[Pair]) -> tuple[str | None, str | None]:
    """`contiguous` and `strided`: what the most calls turned from and to; None where only strides differ."""
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        for was, now in zip(_layouts_of(pair.lost), _layouts_of(pair.gained), strict=False):
            if was != now:
                calls[was, now] += pair.calls
    return ranked(calls)[0] if calls else (None, None)


def _layouts_of(row: RowKey) -> Sequence[str]:
    if row.kind is OpCountKind.OP:
        return op_detail(row.detail).layouts.split()
    return [descriptor.tag for descriptor in primitive_detail(row.detail).descriptors]


def _dtypes(residue: Residue, pairs: Sequence[Pair]) -> Iterable[Change]:
    """One change for each dtype that gave way to another, whatever the ops; neither is better on every machine."""
    for (before, after), group in grouped(pairs, _dtype_change).items():
        account = account_of(group)
        casts, rows = _take_casts(residue, account)
        values = {**account.values, **more_or_fewer("casts", casts), "lost": before, "gained": after}
        rows |= account.rows
        yield changed(ChangeRule.DTYPE, "dtype.changed", rows, account.counts, values, places=account.places)


def _dtype_change(pair: Pair) -> tuple[str, str]:
    """The dtypes that only one side has, `bf16` and `f32`; all of them where only their order differs."""
    before, after = (dtypes_of(row.kind, row.detail) for row in (pair.lost, pair.gained))
    only_before, only_after = Counter(before) - Counter(after), Counter(after) - Counter(before)
    if not only_before and not only_after:
        return " ".join(before), " ".join(after)
    return "/".join(sorted(only_before)) or "none", "/".join(sorted(only_after)) or "none"


def _take_casts(residue: Residue, account: Account) -> tuple[int, frozenset[RowKey]]:
    """How many more casts there are around, and their rows; `to` calls `_to_copy` calls `copy_`, which is one cast."""
    casts = 0
    rows: frozenset[RowKey] = frozenset()
    for place in sorted(around(account.places)):
        found = [row for row in residue.open_at(place) if _is_cast(row)]
        changes = {short(op): change for op, change in residue.op_changes(place).items()}
        casts += next((changes[op] for op in ("_to_copy", "to", "copy_") if changes.get(op) and found), 0)
        rows |= residue.take(found)
    return casts, rows


def _is_cast(row: RowKey) -> bool:
    """Whether a row counts casts; a `copy_` between equal dtypes is none."""
    if row.kind is not OpCountKind.OP or short(row.name) not in CASTS:
        return False
    return short(row.name) != "copy_" or len(set(op_detail(row.detail).dtypes.split())) > 1


def _shapes(residue: Residue, pairs: Sequence[Pair]) -> list[Change]:
    """One change for all: a larger batch changes every op, a wider layer all that follow it.

    Where a loop over rows took the place of one call, more calls came than went; they belong to the change.
    """
    if not pairs:
        return []
    account = account_of(pairs)
    values = {**account.values, "examples": _examples(pairs)}
    telling, earliest = _telling(pairs)
    if residue.take(row for pair in telling for row in (pair.lost, pair.gained)):
        op = leading(pair.lost.name for pair in earliest)[0]
        named = [pair for pair in earliest if pair.lost.name == op]
        before, after = residue.counts({pair.lost for pair in named}), residue.counts({pair.gained for pair in named})
        values |= {"calls_before": before.before, "calls_after": after.after}
    return [changed(ChangeRule.SHAPES, "shapes.changed", account.rows, account.counts, values)]


def _examples(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """`relu [32,64] → [64,64]`: of each op of the earliest phase the change with the most calls."""
    _, pairs = _telling(pairs)
    named_ops = set(leading(pair.lost.name for pair in pairs))
    named = (pair for pair in pairs if pair.lost.name in named_ops)
    examples: dict[str, str] = {}
    for op, change in ranked(calls_by(named, lambda pair: (short(pair.lost.name), _shape_change(pair)))):
        examples.setdefault(op, f"{op} {change}")
    return tuple(examples.values())


def _shape_change(pair: Pair) -> str:
    """`[32,64,56,56] → [64,64,56,56]`: the first tensor that differs."""
    before, after = (_shapes_of(row) for row in (pair.lost, pair.gained))
    differing = ((was, now) for was, now in zip(before, after, strict=False) if was != now)
    was, now = next(differing, (" ".join(before), " ".join(after)))
    return f"{was or 'none'} → {now or 'none'}"


def _shapes_of(row: RowKey) -> Sequence[str]:
    if row.kind is OpCountKind.PRIMITIVE:
        return [primitive_detail(row.detail).problem]
    return op_detail(row.detail).shapes.split(" ")
