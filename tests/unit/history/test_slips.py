"""Cases that slipped, causes that noise explains, and what people say of changes."""

from __future__ import annotations

import pytest

from perfguard.errors import UsageError
from perfguard.history.changes import ChangeCause, ChangeState, StatedChange, cases_on_machines, change_points_of
from perfguard.history.pairs import PairedEffect
from perfguard.history.slips import COMMITS, slip_in_pairs, slip_of
from perfguard.history.states import find_change
from tests.changed_values import replace
from tests.runs_over_time import runs


def slip(points, stated=()):
    (case,) = cases_on_machines(points, {("step.net", "machine"): stated})
    return slip_of(case)


def test_two_steps_within_the_last_commits_are_one_slip():
    found = slip(runs((10, 0.100), (10, 0.104), (10, 0.110)))
    assert (found.code, found.subject.case_id) == ("history.slipped", "step.net")
    assert found.values["log_ratio"] == pytest.approx(0.095, abs=0.01)
    assert (found.values["changes"], found.values["commits"]) == (2, 30)


@pytest.mark.parametrize(
    "points",
    [
        runs((30, 0.1)),
        runs((15, 0.11), (15, 0.10)),
        runs((10, 0.1), (40, 0.11)),
        runs((10, 0.1), (10, 0.11), (10, 0.1)),
    ],
    ids=["flat", "faster", "long ago", "slower and back"],
)
def test_what_did_not_become_slower_of_late_is_no_slip(points):
    assert slip(points) is None


def test_a_change_that_somebody_calls_noise_is_no_slip():
    points = runs((15, 0.100), (15, 0.110))
    said = StatedChange(
        run_id=points[16].run_id, state=ChangeState.NOISE, author="A", reason="a neighbour", stated_at=1.0
    )
    assert slip(points) is not None
    assert slip(points, [said]) is None
    assert slip(points, [replace(said, state=ChangeState.ACKNOWLEDGED)]) is not None
    assert slip(points, [replace(said, run_id=points[25].run_id)]) is not None


def pairs(*effects, half=0.004):
    """Gates of the commits c1, c2, …, each against the one before."""
    return [
        PairedEffect("step.net", f"c{number}", f"c{number - 1}", effect, effect - half, effect + half)
        for number, effect in enumerate(effects, start=1)
    ]


def test_gates_of_consecutive_commits_add_up_to_a_slip():
    found = slip_in_pairs(pairs(*[0.0015] * 25))
    assert (found.code, found.subject.case_id) == ("history.slipped_in_pairs", "step.net")
    assert found.values["log_ratio"] == pytest.approx(0.0375)
    assert found.values["upper_log_ratio"] - found.values["lower_log_ratio"] == pytest.approx(2 * 5 * 0.004)
    assert (found.values["commits"], found.values["since"]) == (25, "c0")


def test_the_sum_is_of_the_newest_commits_alone():
    found = slip_in_pairs(pairs(*[0.1] * 9, *[0.002] * COMMITS))
    assert found.values["log_ratio"] == pytest.approx(0.002 * COMMITS)
    assert (found.values["commits"], found.values["since"]) == (COMMITS, "c9")


def test_gates_of_the_same_two_commits_count_as_one():
    again = [PairedEffect("step.net", "c25", "c24", 0.0015, -0.0025, 0.0055)] * 3
    found = slip_in_pairs([*pairs(*[0.0015] * 25), *again])
    assert found.values["log_ratio"] == pytest.approx(0.0375)
    assert found.values["commits"] == 25


@pytest.mark.parametrize(
    "gates",
    [
        [],
        pairs(0.05),
        pairs(*[0.0015] * 4),
        pairs(*[-0.0015] * 25),
        pairs(*[0.01, -0.01] * 12),
        [pair for pair in pairs(*[0.0015] * 25) if pair.commit != "c23"],
    ],
    ids=["none", "one gate", "within the noise", "faster", "to and fro", "a gate is missing"],
)
def test_a_sum_that_noise_explains_or_one_gate_is_no_slip(gates):
    assert slip_in_pairs(gates) is None


def test_gates_that_go_round_in_a_circle_end():
    forth, back = (
        PairedEffect("step.net", "a", "b", 0.1, 0.09, 0.11),
        PairedEffect("step.net", "b", "a", 0.1, 0.09, 0.11),
    )
    assert slip_in_pairs([back, forth]).values["commits"] == 2


def test_a_change_no_larger_than_one_with_the_same_code_is_within_the_noise():
    points = runs((15, 0.100), (15, 0.106), (15, 0.110), (15, 0.125))
    same = replace(points[15], source_id=points[14].source_id)
    first, second, third = change_points_of([*points[:15], same, *points[16:]])
    assert (first.cause, second.cause, third.cause) == (
        ChangeCause.SAME_CODE,
        ChangeCause.WITHIN_NOISE,
        ChangeCause.CODE,
    )
    assert [change.is_of_the_code for change in (first, second, third)] == [False, False, True]


def test_a_change_is_named_by_its_commit_or_its_run():
    points = runs((15, 0.100), (15, 0.110), (15, 0.125))
    changes = change_points_of(points)
    assert find_change(changes, changes[1].after.commit[:8]) == changes[1]
    assert find_change(changes, changes[0].after.run_id) == changes[0]
    for name in ("ffff", ""):
        with pytest.raises(UsageError, match=changes[0].after.commit[:12]):
            find_change(changes, name)
