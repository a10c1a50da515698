"""CPUs of the ranks of a case: whole cores, one socket a rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import UsageError
from perfguard.records.ranks import Parallel, Ranks, ranks_of, ranks_of_case

SIX = (((0,), (1,), (2,), (3,), (4,), (5,)),)
TWO_SOCKETS = (((0,), (1,), (2,)), ((3,), (4,), (5,)))
SIBLINGS = (((0, 4), (1, 5), (2, 6), (3, 7)),)


@pytest.mark.parametrize(
    ("sockets", "ranks", "threads", "expected"),
    [
        (SIX, 2, 1, ((0,), (1,))),
        (SIX, 2, None, ((0, 1, 2), (3, 4, 5))),
        (SIX, 4, None, ((0,), (1,), (2,), (3,))),
        (SIX, 1, 6, ((0, 1, 2, 3, 4, 5),)),
        (TWO_SOCKETS, 2, 2, ((0, 1), (3, 4))),
        (TWO_SOCKETS, 3, None, ((0, 1), (3, 4), None)),
        (SIBLINGS, 2, None, ((0, 1, 4, 5), (2, 3, 6, 7))),
        (SIBLINGS, 4, 1, ((0,), (1,), (2,), (3,))),
        (SIBLINGS, 2, 3, ((0, 1, 4), (2, 3, 6))),
    ],
)
def test_ranks_get_cores_of_their_own_within_a_socket(sockets, ranks, threads, expected):
    spread = Ranks(ranks=ranks, threads=threads)
    if None in expected:
        with pytest.raises(UsageError):
            spread.cpus(sockets)
    else:
        assert spread.cpus(sockets) == expected


@pytest.mark.parametrize(
    ("sockets", "ranks", "threads"), [(SIX, 7, 1), (SIX, 2, 4), (TWO_SOCKETS, 1, 4), (SIBLINGS, 5, 1), (SIX, 7, None)]
)
def test_what_does_not_fit_is_refused(sockets, ranks, threads):
    with pytest.raises(UsageError, match=f"{ranks} ranks"):
        Ranks(ranks=ranks, threads=threads).cpus(sockets)


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=3),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_no_two_ranks_share_a_core_and_none_spans_sockets(shape, ranks, threads):
    numbers = iter(range(1000))
    sockets = tuple(tuple(tuple(next(numbers) for _ in range(size)) for size in cores) for cores in shape)
    try:
        sets = Ranks(ranks=ranks, threads=threads).cpus(sockets)
    except UsageError:
        return
    core_of = {cpu: (place, core) for place, cores in enumerate(sockets) for core in cores for cpu in core}
    assert len({len(cpus) for cpus in sets}) == 1
    assert len(sets) == ranks
    for cpus in sets:
        assert len({core_of[cpu][0] for cpu in cpus}) == 1
    owned = [{core_of[cpu] for cpu in cpus} for cpus in sets]
    assert sum(map(len, owned)) == len(set().union(*owned))


def test_only_built_in_steps_that_ask_for_it_are_spread():
    step = "perfguard.benchmarks.steps:bert"
    assert ranks_of_case(step, {"batch": 4, "parallel": "plain"}) is None
    assert ranks_of_case(step, {"ranks": 2}) == Ranks(ranks=2)
    assert ranks_of_case(step, {"threads": 1}) == Ranks(threads=1)
    assert ranks_of_case("mine.py:step", {"ranks": 2, "threads": 4}) is None
    assert ranks_of({"ranks": "2", "threads": "3", "parallel": "plain"}) == Ranks(
        ranks=2, threads=3, parallel=Parallel.PLAIN
    )


def test_gradients_are_averaged_over_several_ranks_of_ddp_alone():
    assert Ranks(ranks=2).exchanges
    assert not Ranks(ranks=1).exchanges
    assert not Ranks(ranks=2, parallel=Parallel.PLAIN).exchanges
