"""Ops and primitives on other tensors: of another memory layout, dtype or shape, with the copies that this takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from perfguard.profile.changes.counted import Change, Rule, changed, more_or_fewer, phases_of
from perfguard.profile.changes.implementations import choices_of
from perfguard.profile.changes.movements import around, take_movements
from perfguard.profile.changes.op_names import CASTS, computes, leading, short
from perfguard.profile.changes.pairs import Account, account_of
from perfguard.profile.changes.residue import Counts, Pair, Residue, RowKey
from perfguard.profile.op_counts.details import channels_last_of, dtypes_of, op_detail, primitive_detail
from perfguard.records.facts import Severity, Value
from perfguard.records.steps.ops import OpCountKind


def layouts(residue: Residue, pairs: Sequence[Pair]) -> list[Change]:
    """One change for all that lost channels_last, one for all that gained it, one for all other layouts."""
    groups: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        before, after = (channels_last_of(row.kind, row.detail) for row in (pair.lost, pair.gained))
        groups[(after > before) - (after < before)].append(pair)
    return [_layout(residue, group, direction) for direction, group in sorted(groups.items())]


def _layout(residue: Residue, pairs: Sequence[Pair], direction: int) -> Change:
    account = account_of(pairs)
    rows, values = account.rows, dict(account.values)
    lost, gained = _layout_change(pairs)
    if direction:
        moved, more = take_movements(residue, around(account.places))
        rows |= more
        kernels = choices_of(pair for pair in pairs if pair.lost.implementation != pair.gained.implementation)
        values |= {**moved, "kernel_lost": kernels[0][0], "kernel_gained": kernels[0][1]} if kernels else moved
    return changed(
        Rule.LAYOUT,
        {-1: "layout.lost", 0: "layout.changed", 1: "layout.gained"}[direction],
        Counts(before=0 if direction > 0 else account.calls, after=0 if direction < 0 else account.calls),
        account.places,
        rows,
        values=values,
        severity=Severity.INFO if direction > 0 else Severity.NOTABLE,
        lost=lost,
        gained=gained,
    )


def _layout_change(pairs: Sequence[Pair]) -> tuple[str | None, str | None]:
    """`contiguous` and `strided`: what the most calls turned from and to; None where only strides differ."""
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        before, after = (_layouts(pair, row.detail) for row in (pair.lost, pair.gained))
        for was, now in zip(before, after, strict=False):
            if was != now:
                calls[was, now] += pair.calls
    return min(calls, key=lambda words: (-calls[words], words)) if calls else (None, None)


def _layouts(pair: Pair, detail: str) -> Sequence[str]:
    if pair.lost.kind is OpCountKind.OP:
        return op_detail(detail).layouts.split()
    return [descriptor.tag for descriptor in primitive_detail(detail).descriptors]


def dtypes(residue: Residue, pairs: Sequence[Pair]) -> list[Change]:
    """One change for each dtype that gave way to another, whatever the ops; neither is better on every machine."""
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[_dtype_change(pair)].append(pair)
    found = []
    for (before, after), group in groups.items():
        account = account_of(group)
        casts, rows = _take_casts(residue, account)
        values: dict[str, Value] = {**account.values, **more_or_fewer("casts", casts)}
        counts = Counts(before=account.calls, after=account.calls)
        rows |= account.rows
        found.append(
            changed(Rule.DTYPE, "dtype.changed", counts, account.places, rows, values=values, lost=before, gained=after)
        )
    return found


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


def shapes(pairs: Sequence[Pair]) -> list[Change]:
    """One change for all: a larger batch changes every op, a wider layer all that follow it."""
    if not pairs:
        return []
    account = account_of(pairs)
    counts = Counts(before=account.calls, after=account.calls)
    places, rows, examples = account.places, account.rows, _examples(pairs)
    return [changed(Rule.SHAPES, "shapes.changed", counts, places, rows, values=account.values, examples=examples)]


def _examples(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """`relu [32,64] → [64,64]`: of each op of the earliest phase the change with the most calls."""
    pairs = [pair for pair in pairs if pair.lost.kind is OpCountKind.OP] or pairs
    pairs = [pair for pair in pairs if computes(pair.lost.name)] or pairs
    first = phases_of(pair.lost.place for pair in pairs)[0]
    pairs = [pair for pair in pairs if pair.lost.place.phase is first]
    named_ops = set(leading(pair.lost.name for pair in pairs))
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        if pair.lost.name in named_ops:
            calls[short(pair.lost.name), _shape_change(pair)] += pair.calls
    examples: dict[str, str] = {}
    for op, change in sorted(calls, key=lambda example: (-calls[example], example)):
        examples.setdefault(op, f"{op} {change}")
    return tuple(examples.values())


def _shape_change(pair: Pair) -> str:
    """`[32,64,56,56] → [64,64,56,56]`: the first tensor that differs."""
    before, after = (_shapes(row) for row in (pair.lost, pair.gained))
    differing = ((was, now) for was, now in zip(before, after, strict=False) if was != now)
    was, now = next(differing, (" ".join(before), " ".join(after)))
    return f"{was or 'none'} → {now or 'none'}"


def _shapes(row: RowKey) -> Sequence[str]:
    if row.kind is OpCountKind.PRIMITIVE:
        return [primitive_detail(row.detail).problem]
    return op_detail(row.detail).shapes.split(" ")
