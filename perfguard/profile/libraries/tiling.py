"""Sharing out a sequence among takers that stand in order, each of which takes a stretch of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_CELLS = 500_000
"""Items times takers that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """What takes some items in a row."""

    fits: Sequence[bool]
    """Whether it takes each item."""
    counts: tuple[int, ...] = ()
    """How many it takes, the likeliest first; empty for any number."""
    has_enough: bool = False
    """Whether it is not expected to take any."""


@dataclass(frozen=True, slots=True)
class _Best:
    """The best way to share out what is left among the takers that are left."""

    cost: int
    """1 for an unlikely number and for an item of a taker that has enough, 2 for a taker that goes without."""
    ways: int
    """In how many ways that can be, up to 2."""
    count: int
    """How many the first taker takes in one of them."""


def share_out(items: int, takers: Sequence[Taker]) -> list[int] | None:
    """How many items each taker takes in turn, so that none is left and the fewest do what is not expected of them.

    Returns:
        None if it cannot be, can be in several ways that are as good, or is too much to be tried.
    """
    if items * len(takers) > _MOST_CELLS:
        return None
    # For each taker the best way from each item on, from the last taker to the first.
    after: list[_Best | None] = [*[None] * items, _Best(0, 1, 0)]
    tables = []
    for taker in reversed(takers):
        after = _table(taker, after)
        tables.append(after)
    if after[0] is None or after[0].ways > 1:
        return None
    shares: list[int] = []
    for table in reversed(tables):
        best = table[sum(shares)]
        shares.append(best.count if best is not None else 0)
    return shares


def _table(taker: Taker, after: Sequence[_Best | None]) -> list[_Best | None]:
    """The best way from each item on, given that of the takers behind."""
    items = len(after) - 1
    table: list[_Best | None] = [None] * (items + 1)
    idle, surplus = (0, 1) if taker.has_enough else (2, 0)
    table[items] = _taking(0, after[items], cost=idle)
    in_a_row = 0
    some: _Best | None = None
    for position in range(items - 1, -1, -1):
        in_a_row = in_a_row + 1 if taker.fits[position] else 0
        none = _taking(0, after[position], cost=idle)
        if taker.counts:
            possible = [(rank, count) for rank, count in enumerate(taker.counts) if count <= in_a_row]
            fixed = [_taking(count, after[position + count], cost=min(rank, 1)) for rank, count in possible]
            table[position] = _best([none, *fixed])
            continue
        # Any number: this item alone, or this one and what it takes from the next one on.
        one = _taking(1, after[position + 1], cost=surplus)
        more = _taking(some.count + 1, some, cost=surplus) if some is not None else None
        some = _best([one, more]) if in_a_row else None
        table[position] = _best([none, some])
    return table


def _taking(count: int, after: _Best | None, *, cost: int) -> _Best | None:
    return None if after is None else _Best(after.cost + cost, after.ways, count)


def _best(choices: Iterable[_Best | None]) -> _Best | None:
    possible = [choice for choice in choices if choice is not None]
    if not possible:
        return None
    cost = min(choice.cost for choice in possible)
    cheapest = [choice for choice in possible if choice.cost == cost]
    return _Best(cost, min(2, sum(choice.ways for choice in cheapest)), cheapest[0].count)
