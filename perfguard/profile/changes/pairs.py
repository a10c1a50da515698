"""Which calls became which: rows that differ in one thing only, from the closest likeness to the loosest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.counted import phases_of
from perfguard.profile.changes.op_names import computes, is_minor, leading, short
from perfguard.profile.changes.residue import Pair, Place, Residue, RowKey
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.details import channels_last_of, op_detail, primitive_detail
from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.facts import Value
from perfguard.records.steps.ops import OpCountKind

REORDER = "reorder"


class Difference(Enum):
    """What tells the two calls of a pair apart; where it is several things, the one that explains the others."""

    IMPLEMENTATION = "implementation"
    LAYOUT = "layout"
    DTYPE = "dtype"
    SHAPES = "shapes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Pairs as a change counts them."""

    calls: int
    """Of leading ops: a wrapper and what it calls are one. Of primitives, where no op differs."""
    ops: tuple[str, ...]
    """Those of the earliest phase first, whose names people know, then the most frequent; short."""
    are_primitives: bool
    """Whether they are primitives, for want of ops."""
    rows: frozenset[RowKey]
    """The rows of all pairs."""

    @property
    def places(self) -> frozenset[Place]:
        """Where they are."""
        return frozenset(row.place for row in self.rows)

    @property
    def values(self) -> dict[str, Value]:
        """What a fact says of them."""
        return {f"affected_{'primitives' if self.are_primitives else 'ops'}": self.calls, "ops": self.ops}


def account_of(pairs: Iterable[Pair]) -> Account:
    """Count pairs, at least one."""
    pairs = list(pairs)
    ops = [pair for pair in pairs if pair.lost.kind is OpCountKind.OP]
    ops = [pair for pair in ops if computes(pair.lost.name)] or ops
    calls = _leading_calls(ops) if ops else _primitive_calls(pairs)
    first = phases_of(pair.lost.place for pair in ops or pairs)[0]
    early = {_name(pair) for pair in ops or pairs if pair.lost.place.phase is first}
    return Account(
        calls=sum(calls.values()),
        ops=tuple(sorted(calls, key=lambda name: (name not in early, -calls[name], name))),
        are_primitives=not ops,
        rows=frozenset(row for pair in pairs for row in (pair.lost, pair.gained)),
    )


def _leading_calls(pairs: Sequence[Pair]) -> Counter[str]:
    at: dict[frozenset[Place], Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        at[frozenset({pair.lost.place, pair.gained.place})][pair.lost.name] += pair.calls
    calls: Counter[str] = Counter()
    for counted in at.values():
        for op in leading(counted):
            calls[short(op)] += counted[op]
    return calls


def _primitive_calls(pairs: Sequence[Pair]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for pair in pairs:
        calls[_name(pair)] += pair.calls
    return calls


def _name(pair: Pair) -> str:
    return short(pair.lost.name) if pair.lost.kind is OpCountKind.OP else pair.lost.name.split()[0]


def pair_rows(residue: Residue, *, minor: bool = False) -> Mapping[Difference, Sequence[Pair]]:
    """Pair ops and primitives of each place.

    Reorders are only paired where nothing but their implementation differs: between which layouts they lead is a matter
    of its own.

    Args:
        residue: What is not explained.
        minor: Whether to pair also ops that only make and describe tensors: they follow others, if there are any.
    """
    pairs: list[Pair] = []
    for key in (_same_but_layouts, _same_but_layouts_and_dtypes, _same_op):
        rows = [row for row in residue.open(OpCountKind.OP) if minor or not is_minor(row.name)]
        pairs += residue.pair(rows, key)
    for key in (_same_but_memory, _same_problem, _same_implementation, _same_primitive):
        rows = [row for row in residue.open(OpCountKind.PRIMITIVE) if row.name not in {REORDER, CACHE_MISS}]
        pairs += residue.pair(rows, key)
    reorders = [row for row in residue.open(OpCountKind.PRIMITIVE) if row.name == REORDER]
    pairs += residue.pair(reorders, lambda row: (row.place, row.detail))
    found: dict[Difference, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[_difference(pair)].append(pair)
    return found


def _difference(pair: Pair) -> Difference:
    lost, gained = pair.lost, pair.gained
    if lost.kind is OpCountKind.PRIMITIVE:
        return _difference_of_primitives(lost, gained)
    was, now = op_detail(lost.detail), op_detail(gained.detail)
    if was.shapes != now.shapes:
        return Difference.SHAPES
    return Difference.DTYPE if was.dtypes != now.dtypes else Difference.LAYOUT


def _difference_of_primitives(lost: RowKey, gained: RowKey) -> Difference:
    was, now = primitive_detail(lost.detail), primitive_detail(gained.detail)
    turn = turn_of(lost.implementation, gained.implementation)
    # A fallback is told for itself, whatever led to it.
    if turn in {Turn.FALLBACK, Turn.RECOVERED}:
        return Difference.IMPLEMENTATION
    if was.problem == now.problem:
        if channels_last_of(lost.kind, lost.detail) != channels_last_of(gained.kind, gained.detail):
            return Difference.LAYOUT
        if was.dtypes != now.dtypes:
            return Difference.DTYPE
    if lost.implementation != gained.implementation or was.attributes != now.attributes:
        return Difference.IMPLEMENTATION
    return Difference.SHAPES if was.problem != now.problem else Difference.LAYOUT


def _same_but_layouts(row: RowKey) -> Hashable:
    detail = op_detail(row.detail)
    return row.place, row.name, detail.shapes, detail.dtypes


def _same_but_layouts_and_dtypes(row: RowKey) -> Hashable:
    return row.place, row.name, op_detail(row.detail).shapes


def _same_op(row: RowKey) -> Hashable:
    return row.place, row.name


def _same_but_memory(row: RowKey) -> Hashable:
    detail = primitive_detail(row.detail)
    return row.place, row.name, detail.problem, detail.attributes, row.implementation


def _same_problem(row: RowKey) -> Hashable:
    return row.place, row.name, primitive_detail(row.detail).problem


def _same_implementation(row: RowKey) -> Hashable:
    return row.place, row.name, row.implementation


def _same_primitive(row: RowKey) -> Hashable:
    return row.place, row.name
