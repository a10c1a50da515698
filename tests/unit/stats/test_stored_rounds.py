from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

from perfguard.errors import MeasurementError
from perfguard.records.run import Round
from perfguard.stats.rounds import estimate_rounds

RULE = {"margin_ratio": 0.0, "level": 0.95}
OLD, NEW = [1.0, 1.02, 0.99, 1.01], [1.10, 1.12, 1.07]


def rounds(times, control_times=None):
    control_times = control_times or [1.0] * len(times)
    return [Round(values_s=(t,), control_s=(c,), started_at=0.0) for t, c in zip(times, control_times, strict=True)]


def test_with_a_steady_control_workload_it_is_welch_on_logs():
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


def test_a_case_that_follows_the_machine_twice_as_strongly_as_the_control_workload_is_not_slow():
    """Memory-bound work may suffer more from a neighbour: 6 % slower beside a control workload 3 % slower is no
    flag."""
    result = estimate_rounds(rounds(OLD), rounds([1.06, 1.07, 1.06], [1.03, 1.035, 1.03]), **RULE)
    assert result.p_slower > 0.1
    assert estimate_rounds(rounds(OLD), rounds([1.16, 1.17, 1.16], [1.03, 1.035, 1.03]), **RULE).p_slower < 0.01


def test_a_faster_control_workload_alone_does_not_make_the_candidate_slow():
    # Full normalisation by a control workload that this case does not follow would say 10 % slower.
    result = estimate_rounds(rounds(OLD), rounds([1.0, 1.01, 1.0], [0.9, 0.9, 0.91]), **RULE)
    assert result.p_slower > 0.1
    assert result.estimate.interval.upper > 0.1


def test_a_faster_machine_is_not_a_faster_candidate():
    plain = estimate_rounds(rounds(NEW), rounds(OLD), **RULE)
    followed = estimate_rounds(rounds(NEW, [1.09, 1.10, 1.07]), rounds(OLD), **RULE)
    assert plain.p_faster < 0.01
    assert followed.p_faster > 0.1


def test_the_p_value_is_the_largest_over_all_coefficients():
    """Times follow the control workload closely, so that they scatter least where it is taken off once."""
    control_times = [1.0, 1.05, 0.95], [1.0, 0.94, 1.05]
    old = rounds([1.02 * c * w for c, w in zip(control_times[0], (1.001, 1.0, 0.998), strict=True)], control_times[0])
    new = rounds([0.99 * c * w for c, w in zip(control_times[1], (1.0, 1.002, 0.999), strict=True)], control_times[1])

    def p_value(coefficient):
        sides = [[math.log(r.values_s[0] / r.control_s[0] ** coefficient) for r in side] for side in (old, new)]
        return stats.ttest_ind(sides[1], sides[0], equal_var=False, alternative="greater").pvalue

    values = [p_value(coefficient) for coefficient in (0.0, 1.0, 2.0)]
    assert max(values) == values[1]
    assert estimate_rounds(old, new, **RULE).p_slower == pytest.approx(max(values))


def test_a_round_is_reduced_to_its_median():
    burst = Round(values_s=(1.0, 1.0, 90.0), control_s=(1.0, 1.0, 70.0), started_at=0.0)
    result = estimate_rounds([burst, *rounds([1.01])], rounds([1.0, 1.01]), **RULE)
    assert result.estimate.log_ratio == pytest.approx(0.0)


def test_identical_rounds_are_a_point():
    result = estimate_rounds(rounds([1.0, 1.0]), rounds([1.0, 1.0, 1.0]), **RULE)
    assert result.estimate.standard_error == 0
    assert result.p_slower == result.p_faster == 1
    assert result.estimate.degrees_of_freedom == 3


def test_a_side_that_never_varies_leaves_the_degrees_of_freedom_of_the_other():
    result = estimate_rounds(rounds([1.0] * 5), rounds(NEW), **RULE)
    assert result.estimate.degrees_of_freedom == pytest.approx(2)


def test_a_control_workload_that_moved_between_identical_rounds_leaves_its_whole_range():
    result = estimate_rounds(rounds([1.0] * 3), rounds([1.0] * 3, [1.1] * 3), **RULE)
    reach = 2 * math.log(1.1)
    assert (result.estimate.interval.lower, result.estimate.interval.upper) == pytest.approx((-reach, 0.0))
    assert result.estimate.log_ratio == pytest.approx(-reach / 2)
    assert result.estimate.standard_error == pytest.approx(reach / 2)


def test_the_interval_is_the_hull_over_all_coefficients_and_the_error_grows_with_it():
    control_times = [1.0, 1.002, 0.998, 1.0], [1.05, 1.048, 1.052]
    found = estimate_rounds(rounds(OLD, control_times[0]), rounds(NEW, control_times[1]), **RULE).estimate

    def welch(coefficient):
        new, old = (
            [math.log(t / c**coefficient) for t, c in zip(times, side, strict=True)]
            for times, side in ((NEW, control_times[1]), (OLD, control_times[0]))
        )
        test = stats.ttest_ind(new, old, equal_var=False)
        interval = test.confidence_interval(0.95)
        error = (statistics.mean(new) - statistics.mean(old)) / test.statistic
        return interval.high - interval.low, interval.low, interval.high, error, test.df

    width, *_, error, degrees = max(welch(coefficient) for coefficient in (0.0, 1.0, 2.0))
    lower = min(welch(coefficient)[1] for coefficient in (0.0, 1.0, 2.0))
    upper = max(welch(coefficient)[2] for coefficient in (0.0, 1.0, 2.0))
    assert (found.interval.lower, found.interval.upper) == pytest.approx((lower, upper))
    assert found.log_ratio == pytest.approx((lower + upper) / 2)
    assert upper - lower > 1.2 * width
    assert found.standard_error == pytest.approx(error * (upper - lower) / width)
    assert (found.degrees_of_freedom, found.blocks) == (pytest.approx(degrees), 3)


@pytest.mark.parametrize(
    ("old", "message"),
    [
        (rounds([1.0]), "1 round"),
        ([], "0 round"),
        ([*rounds([1.0]), Round(values_s=(1.0,), control_s=(), started_at=0)], "no control workload"),
        ([*rounds([1.0]), Round(values_s=(), control_s=(1.0,), started_at=0)], "no values"),
        (rounds([1.0, -1.0]), "sample 0 took"),
        (rounds([1.0, 1.0], [1.0, math.nan]), "sample 0 took"),
    ],
)
def test_rounds_that_say_nothing_are_refused(old, message):
    with pytest.raises(MeasurementError, match=message):
        estimate_rounds(old, rounds(NEW), **RULE)


def test_its_block_sd_is_the_largest_over_the_control_workloads_coefficients():
    old, new = rounds(OLD, [1.0, 1.03, 0.98, 1.0]), rounds(NEW, [1.01, 0.97, 1.02])
    found = estimate_rounds(old, new, **RULE)

    def block_sd(coefficient):
        sides = [
            [math.log(entry.values_s[0]) - coefficient * math.log(entry.control_s[0]) for entry in side]
            for side in (old, new)
        ]
        variance = sum(statistics.variance(side) / len(side) for side in sides)
        return math.sqrt(variance / sum(1 / len(side) for side in sides))

    spreads = [block_sd(coefficient) for coefficient in (0.0, 1.0, 2.0)]
    assert min(spreads) < 0.5 * max(spreads)
    assert found.estimate.block_sd == pytest.approx(max(spreads))
