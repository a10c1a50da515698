"""What an audit finds in new measurements of a package."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.records.tasks import ComplianceTest, Scenario
from perfguard.tasks.auditing import accuses, judge_quality, judge_same, judge_sampled, judge_speed, share_of_claim
from perfguard.tasks.loadgen_logs import LoggedAnswer
from tests.task_records import speed


def codes(found):
    return [each.code for each in found]


@pytest.mark.parametrize(
    ("scenario", "claimed", "found", "share"),
    [(Scenario.SINGLE_STREAM, 0.01, 0.02, 0.5), (Scenario.OFFLINE, 100.0, 50.0, 0.5), (Scenario.SERVER, 1.0, 0.5, 2.0)],
)
def test_the_share_of_a_claim_grows_with_the_speed(scenario, claimed, found, share):
    assert share_of_claim(scenario, claimed, found) == share


@pytest.mark.parametrize(
    ("shares", "code"), [([0.5, 0.95], []), ([1.2], []), ([0.949] * 5, ["audit.too_slow"]), ([], ["audit.too_slow"])]
)
def test_one_try_must_reach_95_percent(shares, code):
    assert codes(judge_speed(shares)) == code


@pytest.mark.parametrize(
    ("claimed", "found", "code"),
    [
        (0.90, 0.856, []),
        (0.90, 0.944, []),
        (0.90, 0.854, ["audit.quality"]),
        (0.90, 0.946, ["audit.quality"]),
        (None, 0.9, ["audit.no_quality"]),
        (0.9, None, ["audit.no_quality"]),
    ],
)
def test_the_quality_may_be_five_percent_off(claimed, found, code):
    assert codes(judge_quality(claimed, found)) == code


@pytest.mark.parametrize(("same_s", "code"), [(0.0091, []), (0.02, []), (0.009, ["audit.caching"])])
def test_one_sample_over_and_over_may_be_ten_percent_faster(same_s, code):
    assert codes(judge_same(speed(0.01, mean_s=0.01), speed(0.01, mean_s=same_s))) == code


def test_without_a_mean_the_rate_is_compared_and_without_both_nothing():
    fast, slow = speed(0.01, samples_per_s=200.0), speed(0.01, samples_per_s=100.0)
    assert codes(judge_same(slow, fast)) == ["audit.caching"]
    assert codes(judge_same(fast, slow)) == []
    assert codes(judge_same(speed(0.01), speed(0.01))) == ["audit.no_latency"]


ANSWER = np.array([1.0, -2.0, 3.0], np.float32)
ROUNDED = (ANSWER * np.float32(1 + 1e-6)).tobytes()


@pytest.mark.parametrize(
    ("sampled", "code"),
    [
        ([ANSWER.tobytes()], []),
        ([ROUNDED], []),
        ([], ["audit.nothing_sampled"]),
        ([(ANSWER * 2).tobytes()], ["audit.other_answers"]),
        ([ANSWER.tobytes()[:4]], ["audit.other_answers"]),
        ([b"abc"], ["audit.other_answers"]),
    ],
)
def test_answers_that_are_logged_while_speed_is_measured_are_those_of_accuracy_mode(sampled, code):
    answers = [LoggedAnswer(sample=5, data=data) for data in sampled]
    plain, logging = speed(0.01, mean_s=0.01), speed(0.01, mean_s=0.0109)
    assert codes(judge_sampled(answers, {5: ANSWER.tobytes()}, plain, logging)) == code


def test_an_example_that_accuracy_mode_did_not_answer_is_another_answer():
    found = judge_sampled([LoggedAnswer(sample=6, data=b"")], {}, speed(0.01), speed(0.01))
    assert codes(found) == ["audit.other_answers"]


def test_logging_answers_must_not_change_the_speed():
    answers = [LoggedAnswer(sample=5, data=ANSWER.tobytes())]
    found = judge_sampled(answers, {5: ANSWER.tobytes()}, speed(0.01, mean_s=0.01), speed(0.01, mean_s=0.012))
    assert codes(found) == ["audit.slower_sampled"]


@pytest.mark.parametrize(
    ("sampled_s", "same_s", "is_accused"),
    [(0.010, 0.010, False), (0.0105, 0.0095, False), (0.0115, 0.010, True), (0.010, 0.008, True)],
)
def test_times_that_tell_against_a_cell_are_measured_again(sampled_s, same_s, is_accused):
    test = ComplianceTest
    means_s = {None: 0.010, test.SAMPLED: sampled_s, test.UNIQUE: 0.010, test.SAME: same_s}
    assert accuses({which: speed(mean_s, mean_s=mean_s) for which, mean_s in means_s.items()}) is is_accused
    assert not accuses({test.SAME: speed(same_s, mean_s=same_s)})
