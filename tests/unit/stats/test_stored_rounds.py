from __future__ import annotations

import math

import pytest
from scipy import stats

from perfguard.errors import MeasurementError
from perfguard.records.run import Round
from perfguard.stats.rounds import estimate_rounds

RULE = {"margin_ratio": 0.0, "level": 0.95}
OLD, NEW = [1.0, 1.02, 0.99, 1.01], [1.10, 1.12, 1.07]


def rounds(times, canaries=None):
    canaries = canaries or [1.0] * len(times)
    return [Round(values_s=(t,), canary_s=(c,), started_at=0.0) for t, c in zip(times, canaries, strict=True)]


def test_with_a_steady_canary_it_is_welch_on_logs():
    result = estimate_rounds(rounds(OLD), rounds(NEW), **RULE)
    welch = stats.ttest_ind(
        [math.log(t) for t in NEW], [math.log(t) for t in OLD], equal_var=False, alternative="greater"
    )
    assert result.p_slower == pytest.approx(welch.pvalue)
    assert result.estimate.degrees_of_freedom == pytest.approx(welch.df)
    assert result.estimate.log_ratio / result.estimate.standard_error == pytest.approx(welch.statistic)
    assert result.estimate.blocks == 3


def test_a_slower_machine_is_not_a_slower_candidate():
    plain = estimate_rounds(rounds(OLD), rounds(NEW), **RULE)
    followed = estimate_rounds(rounds(OLD), rounds(NEW, [1.09, 1.10, 1.07]), **RULE)
    assert plain.p_slower < 0.01
    assert followed.p_slower > 0.1
    assert followed.estimate.standard_error > plain.estimate.standard_error


def test_a_case_that_follows_the_machine_twice_as_strongly_as_the_canary_is_not_slow():
    """Memory-bound work may suffer more from a neighbour: 6 % slower beside a canary 3 % slower is no flag."""
    result = estimate_rounds(rounds(OLD), rounds([1.06, 1.07, 1.06], [1.03, 1.035, 1.03]), **RULE)
    assert result.p_slower > 0.1
    assert estimate_rounds(rounds(OLD), rounds([1.16, 1.17, 1.16], [1.03, 1.035, 1.03]), **RULE).p_slower < 0.01


def test_a_faster_canary_alone_does_not_make_the_candidate_slow():
    # Full normalisation by a canary that this case does not follow would say 10 % slower.
    result = estimate_rounds(rounds(OLD), rounds([1.0, 1.01, 1.0], [0.9, 0.9, 0.91]), **RULE)
    assert result.p_slower > 0.1
    assert result.estimate.interval.upper > 0.1


def test_a_round_is_reduced_to_its_median():
    burst = Round(values_s=(1.0, 1.0, 90.0), canary_s=(1.0, 1.0, 70.0), started_at=0.0)
    result = estimate_rounds([burst, *rounds([1.01])], rounds([1.0, 1.01]), **RULE)
    assert result.estimate.log_ratio == pytest.approx(0.0)


def test_identical_rounds_are_a_point():
    result = estimate_rounds(rounds([1.0, 1.0]), rounds([1.0, 1.0, 1.0]), **RULE)
    assert result.estimate.standard_error == 0
    assert result.p_slower == result.p_faster == 1


@pytest.mark.parametrize(
    ("old", "message"),
    [
        (rounds([1.0]), "1 round"),
        ([], "0 round"),
        ([*rounds([1.0]), Round(values_s=(1.0,), canary_s=(), started_at=0)], "no canary"),
        ([*rounds([1.0]), Round(values_s=(), canary_s=(1.0,), started_at=0)], "no values"),
        (rounds([1.0, -1.0]), "slice 0 took"),
        (rounds([1.0, 1.0], [1.0, math.nan]), "slice 0 took"),
    ],
)
def test_rounds_that_say_nothing_are_refused(old, message):
    with pytest.raises(MeasurementError, match=message):
        estimate_rounds(old, rounds(NEW), **RULE)
