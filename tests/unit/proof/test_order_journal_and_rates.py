"""The order of the gates, what is written down, and what counts are worth."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from tests.proof.gates_against_peers import catalogue, costs
from tests.proof.gates_against_peers.intervals import effect_at_power, mean_effect, rate
from tests.proof.gates_against_peers.journal import Journal, within
from tests.proof.gates_against_peers.live import Plan, latin_square, neighbour_cpu, planned
from tests.proof.gates_against_peers.tools import TOOLS


def plan(**changes):
    given = {
        "tools": tuple(TOOLS),
        "variants": catalogue.COMPARED,
        "regimes": ("idle", "neighbour"),
        "repetitions": 5,
        "gate_minutes": 2.0,
        "allocator": "pinned",
        "seed": 3,
    }
    return Plan(**{**given, **changes})


def test_each_tool_stands_once_in_every_place_of_the_square():
    square = latin_square("abcde", random.Random(1))
    assert all(sorted(row) == list("abcde") for row in square)
    assert all(sorted(column) == list("abcde") for column in zip(*square, strict=True))


def test_tools_share_every_place_evenly_over_whole_squares():
    gates = list(planned(plan(variants=(catalogue.find("identical"),), repetitions=10)))
    first = Counter(gate.tool for gate in gates[:: len(TOOLS)])
    assert set(first.values()) == {len(gates) // len(TOOLS) // len(TOOLS)}


def test_the_same_seed_gives_the_same_order_and_another_seed_another_one():
    assert [g.key for g in planned(plan())] == [g.key for g in planned(plan())]
    assert [g.key for g in planned(plan())] != [g.key for g in planned(plan(seed=4))]


def test_every_gate_has_a_key_of_its_own():
    keys = [gate.key for gate in planned(plan())]
    assert len(keys) == len(set(keys))


def test_asv_is_not_asked_about_what_is_not_in_the_sources():
    asked = {gate.variant.name for gate in planned(plan()) if gate.tool == "asv"}
    assert "placebo-comment" in asked
    assert not asked & {"placebo-path", "placebo-environment"}


def test_a_neighbour_without_another_cpu_shares_the_measured_one(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    assert neighbour_cpu("other", (3,)) == 3
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {2, 3})
    assert neighbour_cpu("other", (3,)) == 2
    assert neighbour_cpu("same", (3,)) == 3


def test_rows_that_were_written_survive_a_line_that_was_cut_off(tmp_path):
    journal = Journal(tmp_path / "new" / "rows.jsonl")
    assert journal.rows() == ()
    journal.append({"key": "a", "value": 1})
    with journal.path.open("a") as file:
        file.write('{"key": "b", "val')
    journal.append({"key": "c"})
    assert journal.done() == {"a", "c"}


def test_only_gates_without_an_answer_are_measured_again_when_asked_for(tmp_path):
    journal = Journal(tmp_path / "rows.jsonl")
    for key, answer in (("a", "pass"), ("b", "error"), ("c", "error"), ("c", "red")):
        journal.append({"key": key, "answer": answer})
    assert journal.done() == {"a", "b", "c"}
    assert journal.done(retry_errors=True) == {"a", "c"}


def test_nothing_new_is_begun_once_the_time_is_up():
    assert list(within("abc", minutes=0)) == []
    assert list(within("abc", minutes=None)) == ["a", "b", "c"]


def test_no_alarm_in_299_gates_says_at_most_one_per_cent():
    assert rate(0, 299).upper == pytest.approx(0.00997, abs=1e-5)
    assert rate(0, 298).upper > 0.01


@pytest.mark.parametrize(("count", "trials"), [(1, 30), (7, 9), (50, 200)])
def test_intervals_are_those_of_clopper_and_pearson(count, trials):
    found = rate(count, trials)
    exact = stats.binomtest(count, trials).proportion_ci(0.95, method="exact")
    assert (found.lower, found.upper) == pytest.approx((exact.low, exact.high))


def test_a_share_without_trials_is_unknown():
    assert (rate(0, 0).lower, rate(0, 0).upper) == (0.0, 1.0)
    with pytest.raises(ValueError, match="4 of 3"):
        rate(4, 3)


def test_the_interval_of_an_effect_is_students_on_logarithms():
    ratios = [0.01, 0.03, -0.01, 0.05]
    found = mean_effect(ratios)
    logs = np.log1p(ratios)
    exact = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    assert (found.lower, found.upper) == pytest.approx(tuple(np.expm1(exact)))
    assert str(found) == "+2.0% [-2.1, +6.2]"


def test_an_effect_measured_once_has_no_interval():
    assert str(mean_effect([0.1])) == "+10.0%"
    with pytest.raises(ValueError, match="one measurement"):
        mean_effect([])


def test_the_effect_with_the_wanted_power_lies_between_the_tried_ones():
    assert effect_at_power([0.01, 0.02, 0.03], [0.2, 0.6, 1.0]) == pytest.approx(0.025)
    assert effect_at_power([0.01, 0.02], [0.9, 1.0]) == 0.01
    assert effect_at_power([0.01, 0.02], [0.1, 0.7]) is None


def test_an_effect_after_which_the_power_falls_again_was_not_found():
    assert effect_at_power([0.01, 0.02, 0.03], [0.9, 0.5, 0.9]) == pytest.approx(0.0275)


def test_a_tool_gets_what_fits_into_the_minutes_and_never_less_than_it_asks_for():
    line = costs.line_through((4, 100.0), (6, 140.0))
    assert line == {"fixed_s": 20.0, "unit_s": 20.0}
    assert costs.fitting(20.0, 20.0, minutes=3, least=4) == 8
    assert costs.fitting(20.0, 20.0, minutes=1, least=4) == 4


def test_a_pilot_that_noise_has_turned_round_makes_no_gate_endless():
    assert costs.line_through((4, 166.0), (6, 165.0)) == {"fixed_s": 56.0, "unit_s": 27.5}
