"""Two arms of a script by pairs of processes: how many, what they say, and when the second arm does not count."""

from __future__ import annotations

import math
import random
from itertools import count

import pytest

from perfguard.errors import InterruptedRunError, UsageError
from perfguard.gate.paired.compare_scripts import MIN_PAIRS, Precision, compare_pairs
from perfguard.records.run import Arm
from perfguard.records.script_settings import SettingUse
from perfguard.runner.profiling.script_pairs import ScriptFailedError, ScriptPair, SettingIgnoredError

FUSED = SettingUse(name="optimizer", value="fused", changed=1)
SAME = {"loss_1": 2.0, "gradient_norm_1": 1.0}


def pair(*, baseline_s=0.2, candidate_s=0.1, before=SAME, after=SAME, dtypes=(), seed=5):
    return ScriptPair(
        data_seed=seed,
        baseline_s=(baseline_s,) * 4,
        candidate_s=(candidate_s,) * 4,
        checks={Arm.BASELINE: dict(before), Arm.CANDIDATE: dict(after)},
        dtypes=frozenset(dtypes),
        settings={Arm.BASELINE: (), Arm.CANDIDATE: (FUSED,)},
        wall_s=10.0,
    )


def endless(**of_pair):
    return (pair(seed=seed, **of_pair) for seed in count())


def compare(source, *, half_width=0.01, share_of_effect=0.0, budget_s=1000.0, repeated=SAME, pair_s=10.0):
    ticks = count()
    precision = Precision(half_width=half_width, share_of_effect=share_of_effect, budget_s=budget_s)
    return compare_pairs(source, lambda _: dict(repeated), precision, clock=lambda: next(ticks) * pair_s)


def failing(error):
    yield pair()
    raise error


def codes(found):
    return [each.code for each in found.refused]


def test_the_ratio_is_of_the_steps_and_the_fewest_pairs_do_where_these_agree():
    found = compare(endless())
    assert (found.pairs, found.steps) == (MIN_PAIRS, 4 * MIN_PAIRS)
    assert found.ratio == pytest.approx(0.5)
    assert (found.before_s, found.after_s) == (0.2, 0.1)
    assert found.settings == (FUSED,)
    assert codes(found) == []


def test_pairs_that_scatter_go_on_until_the_interval_is_narrow():
    ratios = (1.0, 1.02)
    found = compare(pair(baseline_s=0.1, candidate_s=0.1 * ratios[index % 2]) for index in count())
    assert found.pairs > MIN_PAIRS
    assert found.upper / found.lower < 1.021
    assert found.lower < 1.01 < found.upper


def test_the_time_ends_it_before_another_pair_would_be_too_late():
    source = (pair(candidate_s=0.1 + 0.01 * (number % 2)) for number in count())
    found = compare(source, half_width=0.0, budget_s=45.0)
    assert found.pairs == 4  # 40 s are spent after the fourth, and another takes 10
    assert compare(endless(), budget_s=5.0).pairs == 1


def scattered(log_ratio, *, sd, seed):
    draw = random.Random(seed)
    return (pair(candidate_s=0.2 * math.exp(draw.gauss(log_ratio, sd))) for _ in count())


def test_a_large_effect_ends_it_sooner_where_that_is_allowed():
    sooner, later = (
        compare(scattered(-0.5, sd=0.05, seed=1), share_of_effect=share, budget_s=300.0) for share in (0.5, 0.0)
    )
    assert sooner.pairs < later.pairs
    assert sooner.upper < 1


def claims(share_of_effect):
    """How many of 200 comparisons of equal arms show a difference."""
    found = [
        compare(scattered(0.0, sd=0.1, seed=seed), half_width=0.02, share_of_effect=share_of_effect, budget_s=100.0)
        for seed in range(200)
    ]
    return sum(each.upper < 1 or each.lower > 1 for each in found)


def test_an_end_by_the_effect_claims_hardly_more_differences_that_do_not_exist():
    assert 0 < claims(0.5) <= 1.5 * claims(0.0) < 30


def test_one_pair_has_no_interval():
    found = compare(endless(), budget_s=5.0)
    assert found.ratio == pytest.approx(0.5)
    assert (found.lower, found.upper) == (None, None)


@pytest.mark.parametrize(
    ("after", "dtypes", "refused"),
    [
        ({"loss_1": 2.001}, (), []),
        ({"loss_1": 2.01}, (), ["result.different"]),
        ({"loss_1": 2.01}, ("bf16",), []),
        ({"loss_1": 2.3}, ("bf16",), ["result.different"]),
        ({"gradient_norm_1": 1.1}, (), ["result.different"]),
        ({"gradient_norm_1": float("nan")}, (), ["script.not_finite"]),
        ({"loss_1": float("inf")}, ("bf16",), ["script.not_finite"]),
    ],
)
def test_an_arm_that_computes_something_else_is_refused(after, dtypes, refused):
    assert codes(compare(endless(after={**SAME, **after}, dtypes=dtypes))) == refused


def test_an_arm_that_differs_is_refused_even_if_the_time_ends_after_one_pair():
    assert codes(compare(endless(after={**SAME, "loss_1": 3.0}), budget_s=5.0)) == ["result.different"]


def test_a_script_that_differs_from_itself_is_told_apart_from_a_wrong_arm():
    found = compare(endless(after={**SAME, "loss_1": 3.0}), repeated={**SAME, "loss_1": 2.5})
    assert codes(found) == ["script.not_reproducible"]


def test_one_pair_that_differs_by_chance_is_outvoted():
    source = (pair(after={**SAME, "loss_1": 2.003 if number == 0 else 2.0}) for number in count())
    assert codes(compare(source)) == []


def test_results_that_nobody_could_compare_are_noted():
    (note,) = compare(endless(before={}, after={})).notes
    assert note.code == "script.unchecked"


def test_a_setting_that_is_ignored_or_fails_is_refused_with_its_reason():
    ignored = compare(failing(SettingIgnoredError("train.py ignores optimizer=fused")))
    assert codes(ignored) == ["script.ignored"]
    assert ignored.refused[0].values["error"] == "train.py ignores optimizer=fused"
    failed = compare(failing(ScriptFailedError(Arm.CANDIDATE, "failed: no\nTraceback")))
    assert failed.refused[0].values == {"error": "failed: no", "detail": "Traceback"}


@pytest.mark.parametrize("error", [ScriptFailedError(Arm.BASELINE, "failed: no"), UsageError("ignored")])
def test_a_script_that_fails_or_ignores_a_setting_in_the_first_arm_is_an_error(error):
    with pytest.raises(type(error)):
        compare(failing(error))


def test_nothing_measured_is_an_interrupt():
    with pytest.raises(InterruptedRunError):
        compare([])


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (SAME, {"loss_1": 2.0}, "script.one_arm_only"),
        ({"loss_1": 2.0}, SAME, "script.one_arm_only"),
        (SAME, {**SAME, "loss_1": math.nan}, "script.not_finite"),
        ({**SAME, "loss_1": math.inf}, SAME, "script.not_finite"),
    ],
)
def test_numbers_that_one_arm_lacks_or_that_are_finite_in_one_refuse_it_in_any_pair(before, after, code):
    found = compare(iter([pair(before=before, after=after), *(pair() for _ in range(5))]))
    assert codes(found) == [code]
