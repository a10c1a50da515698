"""Fused ops whose work is done in pieces now, or the other way round."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of, phases_of, where
from perfguard.profile.changes.count_rules.op_names import (
    FUSIONS,
    Fusion,
    is_copy,
    is_minor,
    is_piece_of,
    leading,
    named,
    short,
)
from perfguard.profile.trace.op_groups import group_of
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perfguard.profile.changes.count_rules.residue import Place, Residue

_BROKEN, _JOINED = -1, 1
"""Sign of the change of the fused op's calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replaced:
    """Where one took the place of the other."""

    whole: Place
    """Place of the fused op."""
    pieces: Place
    """Place of its pieces."""


def fusions(residue: Residue) -> list[Fact]:
    """`12 scaled_dot_product_… → 36 bmm/_softmax/mul in forward and backward of Bert`: one fact for each fused op.

    Copies and views at the same places belong to it: within a fused op there is no need for any.
    """
    return [fact for fusion in FUSIONS for fact in _facts_of(residue, fusion)]


def _facts_of(residue: Residue, fusion: Fusion) -> Iterable[Fact]:
    found: dict[int, list[_Replaced]] = defaultdict(list)
    fused = (row for row in residue.open(CensusKind.OP) if short(row.name) in fusion.fused)
    for place in sorted({row.place for row in fused}):
        for direction in (_BROKEN, _JOINED):
            replaced = _replaced(residue, place, fusion, direction)
            if replaced is not None:
                found[direction].append(replaced)
    for direction, all_replaced in sorted(found.items()):
        yield _fact(residue, fusion, all_replaced, direction)


def _replaced(residue: Residue, place: Place, fusion: Fusion, direction: int) -> _Replaced | None:
    """Where calls of the fused op, all its names together, changed in a direction and pieces in the other; else None.

    The pieces are at the same place or, where a module gave way to a few lines of code, in the module around it.
    """
    changes = residue.op_changes(place)
    whole = sum(change for op, change in changes.items() if short(op) in fusion.fused)
    if whole * direction <= 0:
        return None
    for other in (place, replace(place, module=place.module.rpartition(".")[0])):
        pieces = residue.op_changes(other).items()
        core = (change for op, change in pieces if is_piece_of(op, fusion) and group_of(op) is fusion.core)
        if any(change * direction < 0 for change in core):
            return _Replaced(whole=place, pieces=other)
    return None


def _fact(residue: Residue, fusion: Fusion, found: Sequence[_Replaced], direction: int) -> Fact:
    places = frozenset(place for replaced in found for place in (replaced.whole, replaced.pieces))
    # Forward and backward tell the same story; the earlier one has the names that people know.
    early = [place for place in places if place.phase is phases_of(places)[0]]
    whole: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for place in early:
        for op, change in residue.op_changes(place).items():
            if short(op) in fusion.fused and change * direction > 0:
                whole[op] += abs(change)
            elif is_piece_of(op, fusion) and change * direction < 0:
                pieces[op] += abs(change)
    told = _told(whole), _told(pieces)
    before, after = told if direction == _BROKEN else told[::-1]
    rows = [row for place in places for row in residue.at(place) if row.kind is CensusKind.OP]
    named_ops = {*leading(whole), *leading(pieces)}
    counts = residue.counts(row for row in rows if row.name in named_ops)
    return Fact(
        rule=Rule.FUSION,
        before=counts.before,
        after=counts.after,
        sentence=f"{before} → {after} {where(places)}",
        places=places,
        rows=residue.take(row for row in rows if _belongs(row.name, fusion)),
        gravity=gravity_of(-direction),
    )


def _belongs(op: str, fusion: Fusion) -> bool:
    return short(op) in fusion.fused or is_piece_of(op, fusion) or is_minor(op) or is_copy(op)


def _told(calls: Counter[str]) -> str:
    ops = sorted(leading(calls), key=lambda op: (-calls[op], op))
    return f"{sum(calls[op] for op in ops):,} {named(ops)}"
