"""Time that the parent's clock saw and the candidate does not claim."""

from __future__ import annotations

import random

import pytest

from perfguard.gate.rules.measuring_guards import guard_clocks
from perfguard.records.run import CaseClock
from perfguard.records.verdict import Outcome
from tests.compared_cases import verdict_without_times

CASE = "step.train"


def clocks(unexplained_s, elapsed_s=0.02):
    return [
        CaseClock(case_id=CASE, block=block, elapsed_s=elapsed_s, unexplained_s=each)
        for block, each in enumerate(unexplained_s)
    ]


def guarded(unexplained_s, outcome=Outcome.UNCHANGED, *, of_cpu=False):
    verdicts = [verdict_without_times(CASE, outcome, "as.before")]
    (found,) = guard_clocks(verdicts, clocks(unexplained_s), of_cpu=of_cpu)
    return found.outcome, [reason.code for reason in found.reasons]


@pytest.mark.parametrize("outcome", [Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.DIFFERENT])
def test_a_candidate_that_hides_time_in_all_blocks_has_failed(outcome):
    assert guarded([0.001] * 5, outcome) == (Outcome.FAILED, ["case.time_hidden", "as.before"])


def test_a_candidate_that_hides_most_of_its_time_has_failed_though_the_blocks_scatter_and_one_shows_nothing():
    found = guard_clocks(
        [verdict_without_times(CASE, Outcome.IMPROVED, "as.before")],
        [*clocks([0.018, 0.015, 0.007]), *clocks([0.09, 0.06], elapsed_s=0.1), *clocks([-0.02])],
    )
    assert [(each.outcome, each.reasons[0].code) for each in found] == [(Outcome.FAILED, "case.time_hidden")]


def test_what_is_slower_all_the_same_stays_red():
    assert guarded([0.01] * 6, Outcome.REGRESSED) == (Outcome.REGRESSED, ["case.time_hidden", "as.before"])


@pytest.mark.parametrize(
    "unexplained_s",
    [[], [0.01] * 4, [0.0004] * 20, [0.004] * 8 + [0.0, 0.0], [-0.01] * 9],
    ids=["nothing", "few blocks", "less than a meter's reading", "disturbed blocks", "the baseline's"],
)
def test_anything_less_says_nothing(unexplained_s):
    assert guarded(unexplained_s) == (Outcome.UNCHANGED, ["as.before"])


def test_a_busy_host_is_never_taken_for_a_hidden_clock():
    """Differences as two programs beside the worker make them: some milliseconds, in either direction."""
    draw = random.Random(1)
    for blocks in (5, 12):
        found = [guarded([draw.gauss(0, 0.003) for _ in range(blocks)])[0] for _ in range(4000)]
        assert found.count(Outcome.FAILED) / 4000 < 0.001


def test_short_samples_wait_as_long_for_a_cpu_as_others():
    """Four of five blocks of a gate on a host that other programs used, with samples of 2.5 ms."""
    waited = [verdict_without_times(CASE, Outcome.DIFFERENT)]
    (found,) = guard_clocks(waited, clocks([0.0009, 0.0021, 0.0012, 0.0041, -0.0002], elapsed_s=0.0025))
    assert found.outcome is Outcome.DIFFERENT


@pytest.mark.parametrize(("silent", "outcome"), [(2, Outcome.FAILED), (3, Outcome.UNCHANGED)])
def test_a_tenth_of_the_blocks_need_not_show_it(silent, outcome):
    assert guarded([0.01] * (20 - silent) + [0.0] * silent)[0] is outcome


@pytest.mark.parametrize(("scatter", "outcome"), [(0.03, Outcome.FAILED), (0.06, Outcome.UNCHANGED)])
def test_less_than_a_gross_part_must_be_eight_standard_errors_beyond_the_limit(scatter, outcome):
    """Of sixteen blocks that hide a tenth of 20 ms, 0.075 more than the limit: 9.7 standard errors, or 4.8."""
    assert guarded([0.02 * (0.1 + sign * scatter) for sign in (1, -1)] * 8)[0] is outcome


@pytest.mark.parametrize(
    ("elapsed_s", "hidden_s", "outcome"),
    [
        (1.0, 0.03, Outcome.FAILED),
        (1.0, 0.019, Outcome.UNCHANGED),
        (0.02, 0.00045, Outcome.UNCHANGED),
        (0.02, 0.00055, Outcome.FAILED),
    ],
)
def test_two_per_cent_of_a_sample_or_half_a_millisecond_say_nothing(elapsed_s, hidden_s, outcome):
    verdicts = [verdict_without_times(CASE, Outcome.UNCHANGED)]
    (found,) = guard_clocks(verdicts, clocks([hidden_s] * 6, elapsed_s=elapsed_s))
    assert found.outcome is outcome


def test_an_honest_case_leaves_the_next_one_to_be_looked_at():
    verdicts = [verdict_without_times(name, Outcome.UNCHANGED) for name in ("honest", CASE)]
    assert [each.outcome for each in guard_clocks(verdicts, clocks([0.01] * 6))] == [Outcome.UNCHANGED, Outcome.FAILED]


def test_of_cpu_seconds_twice_as_much_may_be_left_over():
    assert guarded([0.0009] * 6, of_cpu=True) == (Outcome.UNCHANGED, ["as.before"])
    assert guarded([0.0011] * 6, of_cpu=True) == (Outcome.FAILED, ["case.cpu_time_hidden", "as.before"])
