"""Which calls became which: rows that differ in one thing only, from the closest likeness to the loosest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.op_names import is_minor
from perfguard.profile.libraries.implementations import Turn, turn_of
from perfguard.profile.op_counts.census import CACHE_MISS
from perfguard.profile.op_counts.census_details import channels_last_of, op_detail, primitive_detail
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from perfguard.profile.changes.count_rules.residue import Pair, Residue, RowKey

REORDER = "reorder"


class Difference(Enum):
    """What tells the two calls of a pair apart; where it is several things, the one that explains the others."""

    IMPLEMENTATION = "implementation"
    LAYOUT = "layout"
    DTYPE = "dtype"
    SHAPES = "shapes"


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
        rows = [row for row in residue.open(CensusKind.OP) if minor or not is_minor(row.name)]
        pairs += residue.pair(rows, key)
    for key in (_same_but_memory, _same_problem, _same_implementation, _same_primitive):
        rows = [row for row in residue.open(CensusKind.PRIMITIVE) if row.name not in {REORDER, CACHE_MISS}]
        pairs += residue.pair(rows, key)
    reorders = [row for row in residue.open(CensusKind.PRIMITIVE) if row.name == REORDER]
    pairs += residue.pair(reorders, lambda row: (row.place, row.detail))
    found: dict[Difference, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[_difference(pair)].append(pair)
    return found


def _difference(pair: Pair) -> Difference:
    lost, gained = pair.lost, pair.gained
    if lost.kind is CensusKind.PRIMITIVE:
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
