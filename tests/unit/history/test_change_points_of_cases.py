"""Changes of level over recorded runs, and what may be their cause."""

from __future__ import annotations

import math

import pytest

from perfguard.history.changes import ChangeCause, cases_on_machines, change_points_of
from tests.runs_over_time import point, runs


def test_a_change_between_two_trees_may_be_of_the_code():
    (change,) = change_points_of(runs((12, 1.0), (12, 1.1)))
    assert (change.before.run_id, change.after.run_id) == ("run-11", "run-12")
    assert change.cause is ChangeCause.CODE
    assert change.lower < math.log(1.1) < change.upper


def test_between_runs_of_the_same_tree_it_is_not():
    (change,) = change_points_of(runs((12, 1.0), (12, 1.1), source_id="tree"))
    assert change.cause is ChangeCause.SAME_CODE


@pytest.mark.parametrize("unknown", [11, 12])
def test_where_a_tree_is_not_known_the_cause_is_not(unknown):
    known = runs((12, 1.0), (12, 1.1))
    known[unknown] = point(unknown, known[unknown].median_s, source_id=None)
    (change,) = change_points_of(known)
    assert change.cause is ChangeCause.UNKNOWN


def test_other_software_begins_another_series():
    assert change_points_of([*runs((12, 1.0)), *runs((12, 1.1), first=12, stack_id="newer")]) == ()


def test_machines_that_take_turns_are_series_of_their_own():
    slow = runs((10, 3.0), (10, 3.3), machine_id="slow")
    fast = runs((20, 1.0), machine_id="fast")
    turns = [each for pair in zip(fast, slow, strict=True) for each in pair]
    first, second = cases_on_machines(turns)
    assert (first.machine_id, first.points, first.changes) == ("fast", tuple(fast), ())
    assert (second.machine_id, second.points) == ("slow", tuple(slow))
    assert [change.after.run_id for change in second.changes] == ["run-10"]
