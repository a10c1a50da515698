"""Optimizers that update their parameters in another way: fused, by foreach ops, or one tensor at a time."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Rule, gravity_of
from perfguard.profile.changes.count_rules.op_names import computes, named, short
from perfguard.profile.op_counts.census_details import op_detail
from perfguard.records.steps.ops import CensusKind, StepPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfguard.profile.changes.count_rules.residue import Place, Residue, RowKey


_LIST = re.compile(r"\{(?P<tensors>\d+):(?P<elements>\d+)\}")
"""The shape of a list of tensors: how many, and how many elements together."""


class _Style(IntEnum):
    """How an optimizer updates, the least work first."""

    FUSED = 0
    FOREACH = 1
    SINGLE_TENSOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """What an optimizer's step executes."""

    style: _Style
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Parameters:
    """What an optimizer updates, as far as its ops take lists of tensors."""

    elements: int
    tensors: int

    def __str__(self) -> str:
        return f"{self.tensors:,} tensors of {self.elements:,} elements"


def optimizers(residue: Residue) -> list[Fact]:
    """`Adam: fused → 1,240 small mul_/addcdiv_/lerp_`: one fact for each optimizer whose way of updating changed.

    Also `Adam: 62 tensors of 11,689,512 elements → 60 tensors of …`, where it does the same for other parameters.
    """
    places = {row.place for row in residue.open(CensusKind.OP) if row.place.phase is StepPhase.OPTIMIZER}
    return [fact for place in sorted(places) if place.module for fact in _facts_at(residue, place)]


def _facts_at(residue: Residue, place: Place) -> Iterable[Fact]:
    rows = [row for row in residue.at(place) if row.kind is CensusKind.OP]
    before, after = _updates(residue, rows)
    # An optimizer that only one side has is no other way of updating.
    if before is None or after is None:
        return
    if before.style is not after.style:
        yield Fact(
            rule=Rule.FUSION,
            before=sum(before.calls.values()),
            after=sum(after.calls.values()),
            sentence=f"{place.module}: {_told(before)} → {_told(after)}",
            places=frozenset({place}),
            rows=residue.take(rows),
            gravity=gravity_of(after.style - before.style),
        )
        return
    was, now = _parameters(residue, rows)
    if was and now and was != now:
        yield Fact(
            rule=Rule.SHAPES,
            before=was.tensors,
            after=now.tensors,
            sentence=f"{place.module}: {was} → {now}",
            places=frozenset({place}),
            rows=residue.take(rows),
            gravity=gravity_of(now.elements - was.elements),
        )


def _updates(residue: Residue, rows: Iterable[RowKey]) -> tuple[_Update | None, _Update | None]:
    """How either side updates; None where it has no such optimizer."""
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for row in rows:
        if computes(row.name):
            counts = residue.counts([row])
            before[short(row.name)] += counts.before
            after[short(row.name)] += counts.after
    return _update(+before), _update(+after)


def _parameters(residue: Residue, rows: Sequence[RowKey]) -> tuple[_Parameters | None, _Parameters | None]:
    """The longest lists of tensors that ops of either side take."""
    found: tuple[list[_Parameters], list[_Parameters]] = [], []
    for row in rows:
        listed = _LIST.match(op_detail(row.detail).shapes)
        if listed:
            counts = residue.counts([row])
            for side, count in zip(found, (counts.before, counts.after), strict=True):
                if count:
                    side.append(_Parameters(tensors=int(listed["tensors"]), elements=int(listed["elements"])))
    return max(found[0], default=None), max(found[1], default=None)


def _update(calls: Mapping[str, int]) -> _Update | None:
    if not calls:
        return None
    if any("fused" in name for name in calls):
        return _Update(style=_Style.FUSED, calls=calls)
    foreach = any(name.startswith("_foreach_") for name in calls)
    return _Update(style=_Style.FOREACH if foreach else _Style.SINGLE_TENSOR, calls=calls)


def _told(update: _Update) -> str:
    if update.style is _Style.FUSED:
        return "fused"
    kinds = {name: n for name, n in update.calls.items() if name.startswith("_foreach_")}
    kinds = kinds or dict(update.calls)
    frequent = sorted(kinds, key=lambda name: (-kinds[name], name))
    size = "" if update.style is _Style.FOREACH else "small "
    return f"{sum(kinds.values()):,} {size}{named(frequent)}"
