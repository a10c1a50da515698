from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.profile.libraries.mkl_join import Taker, share_out


def taker(fits: str, *counts: int, has_enough: bool = False) -> Taker:
    """One that takes the items marked with an x."""
    return Taker(fits=[mark == "x" for mark in fits], counts=counts, has_enough=has_enough)


@pytest.mark.parametrize(
    ("takers", "shares"),
    [
        ([taker("xx..", 2), taker("..xx", 2)], [2, 2]),
        ([taker("x...", 1), taker("xxxx"), taker("...x", 1)], [1, 2, 1]),
        ([taker("xx.."), taker("..xx")], [2, 2]),
        ([taker("xxxx", 4, 2), taker("....", 1)], [4, 0]),
        ([taker("xxxx", 2), taker("xxxx", 2)], [2, 2]),
        ([taker("xxxx")], [4]),
    ],
)
def test_a_sequence_is_shared_out_in_the_only_way(takers, shares):
    assert share_out(4, takers) == shares


@pytest.mark.parametrize(
    "takers",
    [
        [taker("xxxx"), taker("xxxx")],
        [taker("xxxx", 2, 1), taker("xxxx", 2, 1), taker("xxxx", 2, 1)],
        [taker("xxxx", 4), taker("xxxx", 4)],
        [taker("xxx.", 3)],
        [taker("xxxx", 3)],
        [taker("..xx", 2), taker("xx..", 2)],
        [],
    ],
)
def test_nothing_is_guessed_where_there_are_several_ways_or_none(takers):
    assert share_out(4, takers) is None


def test_the_fewest_do_what_is_not_expected_of_them():
    assert share_out(4, [taker("xxxx", has_enough=True), taker("xxxx", 4, 2)]) == [0, 4]
    assert share_out(3, [taker("x..", has_enough=True), taker(".xx", 2, 1)]) == [1, 2]
    assert share_out(2, [taker("xx", 2, 1), taker("x.", 1)]) == [2, 0]
    assert share_out(4, [taker("xxxx", 1, 2), taker("xxxx", 2, 1), taker("xxxx", 1, 2)]) == [1, 2, 1]


def test_nothing_to_share_out_is_shared_out():
    assert share_out(0, [taker("", 1)]) == [0]
    assert share_out(0, []) == []


def test_too_much_is_not_tried():
    assert share_out(1_000_000, [taker("x" * 1_000_000)]) is None


def all_ways(items: int, takers: list[Taker]) -> dict[tuple[int, ...], int]:
    """Every way and its cost, by trying."""
    found = {}
    for shares in product(range(items + 1), repeat=len(takers)):
        if sum(shares) != items:
            continue
        position, cost, possible = 0, 0, True
        for one, share in zip(takers, shares, strict=True):
            possible &= all(one.fits[position : position + share])
            if share and one.counts:
                possible &= share in one.counts
                cost += share != one.counts[0]
            elif share:
                cost += share * one.has_enough
            else:
                cost += 0 if one.has_enough else 2
            position += share
        if possible:
            found[shares] = cost
    return found


drawn_takers = st.lists(
    st.builds(
        Taker,
        fits=st.lists(st.booleans(), min_size=5, max_size=5),
        counts=st.sampled_from([(), (1,), (2,), (2, 1), (4, 2)]),
        has_enough=st.booleans(),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(st.integers(0, 5), drawn_takers)
def test_the_way_found_is_the_only_cheapest_of_all(items, takers):
    ways = all_ways(items, takers)
    cheapest = [shares for shares, cost in ways.items() if cost == min(ways.values())]
    assert share_out(items, takers) == (list(cheapest[0]) if len(cheapest) == 1 else None)
