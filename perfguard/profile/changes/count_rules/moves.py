"""The same calls in other modules: a part of the model that was renamed, or code that went elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perfguard.profile.changes.count_rules.facts import Fact, Gravity, Rule
from perfguard.profile.changes.count_rules.op_names import computes
from perfguard.profile.changes.count_rules.told import told
from perfguard.records.steps.ops import CensusKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from perfguard.profile.changes.count_rules.residue import Pair, Place, Residue, RowKey


def moves(residue: Residue) -> list[Fact]:
    """`12 ops moved from Net.features.* to Net.stem.*: conv2d, relu …`: one fact for all of them.

    Ops that compute show where something went; views, copies and primitives go along between the same places. Phases
    are kept: the same op in another phase is other work, such as a forward that is repeated in backward.
    """
    ops = [row for row in residue.open(CensusKind.OP) if computes(row.name)]
    pairs = residue.pair(ops, lambda row: (row.place.phase, _what(row)))
    if not pairs:
        return []
    links = {_link(pair) for pair in pairs}
    along = [pair for link in sorted(links) for pair in residue.pair(_movable(residue, link), _what)]
    account = told([*pairs, *along])
    rows = account.rows | _take_allocations(residue, account.places)
    return [
        Fact(
            rule=Rule.CALLS,
            before=account.calls,
            after=account.calls,
            sentence=f"{account.text} moved {_from_and_to(pairs)}: {account.names}",
            places=account.places,
            rows=rows,
            gravity=Gravity.HARMLESS,
        )
    ]


def _what(row: RowKey) -> Hashable:
    return row.kind, row.name, row.detail, row.implementation


def _link(pair: Pair) -> tuple[Place, Place]:
    first, second = sorted((pair.lost.place, pair.gained.place))
    return first, second


def _movable(residue: Residue, link: tuple[Place, Place]) -> Sequence[RowKey]:
    rows = [row for place in link for row in residue.open_at(place)]
    return [row for row in rows if row.kind in {CensusKind.OP, CensusKind.PRIMITIVE}]


def _take_allocations(residue: Residue, places: Iterable[Place]) -> frozenset[RowKey]:
    """Allocations of these places, if they are the same together: then they only went along."""
    rows = [row for place in places for row in residue.open_at(place) if row.kind is CensusKind.ALLOCATION]
    if residue.counts(rows).change or residue.sizes(rows).change:
        return frozenset()
    return residue.take(rows)


def _from_and_to(pairs: Sequence[Pair]) -> str:
    """`from Net.a to Net.b and 2 other places`, by the most calls."""
    calls: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        calls[pair.lost.place.module, pair.gained.place.module] += pair.calls
    (before, after), *others = sorted(calls, key=lambda modules: (-calls[modules], modules))
    more = f" and {len(others)} more pairs of places" if others else ""
    return f"from {before or 'no module'} to {after or 'no module'}{more}"
