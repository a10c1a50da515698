"""What is blamed, what is only certain, and in which order they come; times in units, at the limits of the rules."""

from __future__ import annotations

import math

import pytest

from perfguard.profile.changes.attribution import attribute
from tests.exact_profiles import Timed, exact_arms
from tests.simulated_profiles import BACKWARD, FORWARD, op_key, python_key

SLOWER = {"step_more": 20}
FASTER = {"step_more": -20}
IN_DOUBT = {"step_more": 20, "step_scatter": 16}


def timed(name, more, scatter=0.0, *, phase=FORWARD):
    """An op that takes another time, executed as before."""
    return Timed(key=op_key(f"aten::{name}", f"Net.{name}", phase), more=more, scatter=scatter)


def called(name, more, scatter=0.0, *, factor=2):
    """An op that is called so many times as often; where it costs less, it was called as much more often before."""
    calls = (1, factor) if more >= 0 else (factor, 1)
    return Timed(key=op_key(f"aten::{name}", f"Net.{name}"), calls=calls, more=more, scatter=scatter)


def python(name, more, scatter=0.0, *, phase=FORWARD):
    """Time in no op, of a place."""
    return Timed(key=python_key(f"Net.{name}", phase), more=more, scatter=scatter)


def named(*ops, **steps):
    """Places of the culprits, in their order, with their shares; None for a share that is not known."""
    found = attribute("case", *exact_arms([timed("unchanged", 0), *ops], **steps))
    places = [culprit.ops[0].module.removeprefix("Net.") for culprit in found.culprits]
    shares = [None if math.isnan(culprit.share) else culprit.share for culprit in found.culprits]
    return list(zip(places, shares, strict=True))


def order(*ops, **steps):
    return [place for place, _ in named(*ops, **steps)]


@pytest.mark.parametrize(
    ("times", "exact", "expected"),
    [
        (3, 3, ["exact", "calls", "times"]),
        (5, 3, ["times", "exact", "calls"]),
        (5, 1.75, ["times", "calls", "exact"]),
        (3, 1.75, ["calls", "times", "exact"]),
        (3, 2, ["exact", "calls", "times"]),
    ],
    ids=["less by times", "more by times", "exact but next to nothing", "both are less", "a tenth"],
)
def test_before_a_change_that_may_be_all_of_it_comes_what_costs_more_than_its_estimate_or_is_exact(
    times, exact, expected
):
    """The change costs 4, and at most 19."""
    ops = [called("calls", 4, 8), timed("times", times), called("exact", exact, factor=3)]
    assert order(*ops, **SLOWER) == expected


@pytest.mark.parametrize(
    ("times", "exact", "expected"),
    [(15, 0.75, ["exact", "calls", "times"]), (19, 0.75, ["times", "exact", "calls"])],
    ids=["less than the change may", "more than the change may"],
)
def test_of_a_step_in_doubt_comes_first_what_costs_more_than_a_change_may(times, exact, expected):
    ops = [called("calls", 4, 8), timed("times", times), called("exact", exact, factor=3)]
    assert order(*ops, **IN_DOUBT) == expected


@pytest.mark.parametrize(("trifles", "come_first"), [(15, False), (16, True)], ids=["less than half", "half"])
def test_trifles_come_last_unless_they_are_half_of_it_together(trifles, come_first):
    ops = [timed(f"trifle{number}", 0.625) for number in range(trifles)]
    found = order(called("calls", 0.5, 8), *ops, **SLOWER)
    assert found.index("calls") == (trifles if come_first else 0)


@pytest.mark.parametrize(("sign", "steps"), [(1, SLOWER), (-1, FASTER)], ids=["slower", "faster"])
def test_of_what_is_certain_comes_first_what_may_be_most_of_it(sign, steps):
    """Of costs between -14 and 15 and between -1 and 9; the step differs by 20."""
    ops = [called("less", sign * 4, 2.5), called("most", sign * 0.5, 8, factor=3)]
    assert order(*ops, **steps) == ["most", "less"]


def test_a_change_that_costs_nothing_in_the_mean_may_be_all_of_it():
    assert named(called("calls", 0, 8), timed("times", 5), **SLOWER) == [("times", 0.25), ("calls", None)]


@pytest.mark.parametrize(("times", "expected"), [(1.75, ["calls", "times"]), (2, ["times", "calls"])], ids=str)
def test_a_tenth_comes_before_a_certain_change_that_cannot_be_most_of_it_and_less_comes_behind(times, expected):
    """The change costs between -21 and 9."""
    assert order(called("calls", -6, 8), timed("times", times), **SLOWER) == expected


def test_of_a_step_in_doubt_that_seems_faster_what_costs_more_is_blamed():
    ops = [timed("more", 3), timed("less", -5)]
    assert named(*ops, step_more=-20, step_scatter=16) == [("more", None)]


@pytest.mark.parametrize(
    ("step_more", "ops", "expected"),
    [
        (20, [called("half", 10)], [("half", 0.5)]),
        (20, [called("less", 9.75)], [("less", None)]),
        (20, [called("two", 3), called("one", 5, factor=3)], [("one", None), ("two", None)]),
        (-20, [called("most", -16)], [("most", 0.8)]),
        (-20, [called("less", -6)], [("less", None)]),
        (-1, [called("all", -1)], [("all", 1.0)]),
        (-0.5, [called("all", -0.5)], [("all", None)]),
        (0, [called("more", 4)], [("more", None)]),
        (20, [timed("times", 20)], []),
    ],
    ids=[
        *("half of the difference", "less than half", "the larger first", "faster", "less than half of a faster step"),
        *("a thousandth", "less than a thousandth", "no difference", "by times alone"),
    ],
)
def test_of_single_traces_what_is_certain_has_a_share_where_it_is_half_of_the_difference(step_more, ops, expected):
    assert named(*ops, step_more=step_more, processes=1) == expected


@pytest.mark.parametrize(
    ("steps", "ops", "expected"),
    [
        (SLOWER, [python("there", 10, 8)], [("there", 0.5)]),
        (SLOWER, [python("there", 9.75, 8)], []),
        (FASTER, [python("there", -12, 8)], [("there", 0.6)]),
        (IN_DOUBT, [python("there", 12, 8)], []),
        (SLOWER, [python("there", 12, 8), timed("op", 1.5)], [("there", 0.6), ("op", 0.075)]),
        (SLOWER, [python("there", 12, 8), timed("op", 2)], [("op", 0.1)]),
        (SLOWER, [python("there", 12, 8), python("op", 0), called("op", 0.75)], [("there", 0.6), ("op", 0.0375)]),
        (SLOWER, [python("there", 12, 8), python("here", 0.75, phase=BACKWARD)], [("here", 0.0375)]),
    ],
    ids=[
        *("half", "less than half", "faster", "in doubt", "beside next to nothing", "beside a tenth"),
        *("beside an op with its own", "a place that differs by itself"),
    ],
)
def test_python_time_that_scatters_is_blamed_for_half_of_what_no_op_explains(steps, ops, expected):
    assert named(*ops, **steps) == expected


def test_the_largest_of_the_costs_that_moved_is_told():
    moves = [timed("to", 8), timed("from", -8), timed("there", 2), timed("here", -2)]
    found = attribute("case", *exact_arms(moves))
    assert found.culprits == ()
    (note,) = found.notes
    assert (note.values["source"], note.values["target"]) == ("from", "to")


def test_as_many_steps_are_told_of_as_both_arms_have():
    few, many = ({"processes": 3}, {"processes": 4})
    unchanged = [timed("unchanged", 0)]
    (three, _), (four, _) = exact_arms(unchanged, **few), exact_arms(unchanged, **many)
    assert [attribute("case", *arms).steps for arms in ((three, four), (four, three))] == [3, 3]
