"""Denormals that the process counted, and ops that are slow for what they are."""

from __future__ import annotations

import numpy as np
import pytest

from perfguard.profile.advice.evidence import LEAST_STEPS, shortest_calls
from perfguard.profile.op_times.op_profile import OpProfile
from perfguard.records.facts import Severity
from perfguard.records.machine.fingerprint import SoftwareFacts
from perfguard.records.steps.ops import ChangeClass
from perfguard.records.steps.program import DenormalCount
from tests.finding_evidence import all_of, change, comparison, delta, elsewhere, op, place_of, program, seen_codes, told

KERNEL = "[2,64,56,56] [64,64,3,3]"
SLOW = op("mkldnn_convolution", 10, shapes=KERNEL, module="Net.slow")


def slowed(total=SLOW, times=6):
    """The comparison with a baseline in which an op took so many times less."""
    return comparison(delta(total, times=times))


def find(*items, **more):
    return all_of("denormals", *items, **more)


def only(*items, **more):
    (finding,) = find(*items, **more)
    return finding


def counted(denormal, group="parameters"):
    worst = "Net.conv1.weight" if denormal else ""
    return program(denormals=(DenormalCount(group=group, values=100_000, denormals=denormal, worst=worst),))


def places(total, count):
    return [elsewhere(total, f"Net.layer.{number}") for number in range(count)]


def fastest(*totals, times=1.0):
    """Each op as fast in its fastest step as on average, the first one so many times slower."""
    calls = {total.key: total.self_s / total.calls for total in totals}
    return {**calls, totals[0].key: calls[totals[0].key] * times}


def test_counted_denormals_are_told_with_where_most_of_them_are():
    finding = only(program=counted(9_204))
    assert finding.severity is Severity.NOTABLE
    assert finding.code == "advice.denormals"
    assert told(finding, "denormals", "counted", "group", "worst") == (9_204, 100_000, "parameters", "Net.conv1.weight")
    assert told(finding, "is_slow") is False
    assert finding.share is None


def test_a_denormal_here_and_there_is_not_told():
    assert find(program=counted(99)) == []
    assert find(program=counted(100)) != []


def test_nothing_is_told_where_they_are_flushed():
    flushing = program(denormals=counted(9_204).denormals, flushes_denormals=True)
    assert find(SLOW, program=flushing, comparison=slowed()) == []
    assert find(SLOW, software=SoftwareFacts(flushes_denormals=True), comparison=slowed()) == []


def test_an_op_that_slowed_fivefold_with_nothing_else_changed_is_suspected_and_nothing_more():
    finding = only(SLOW, comparison=slowed(), program=counted(0))
    assert finding.severity is Severity.INFO
    assert finding.code == "advice.suspected_denormals"
    assert seen_codes(finding) == ["denormals", "slow_op", "no_proof"]
    assert told(finding, "denormals", "counted", "worst") == (0, 100_000, None)
    assert told(finding, "op", "shapes", "module") == ("mkldnn_convolution", KERNEL, "Net.slow")
    assert told(finding, "times_baseline") == 6
    assert finding.share == pytest.approx(0.1)


def test_counts_and_a_slow_op_together_are_more_than_a_suspicion():
    finding = only(SLOW, comparison=slowed(), program=counted(9_204))
    assert (finding.code, finding.severity) == ("advice.denormals", Severity.NOTABLE)
    assert told(finding, "is_slow") is True


@pytest.mark.parametrize(
    "changed",
    [
        delta(SLOW, times=4),
        delta(SLOW, times=6, kind=ChangeClass.UNCHANGED),
        delta(SLOW, times=6, detail="brg_conv:avx512_core → ref:any"),
    ],
)
def test_a_smaller_or_explained_slowdown_is_no_suspicion(changed):
    assert find(SLOW, comparison=comparison(changed)) == []


def test_a_step_that_is_run_by_other_implementations_is_slow_for_that():
    other = change("implementation", "library.changed")
    assert find(SLOW, comparison=comparison(delta(SLOW, times=6), changes=[other])) == []


def test_an_op_that_is_far_slower_than_its_like_is_suspected():
    like = places(op("mkldnn_convolution", 0.5, shapes=KERNEL), 4)
    finding = only(SLOW, *like, shortest_call_s=fastest(SLOW, *like))
    assert told(finding, "times_peers", "peers") == (20, 4)
    assert place_of(finding) == ("forward", "Net.slow", 1, None)


@pytest.mark.parametrize("peers", [0, 1, 2])
def test_with_few_of_its_like_there_is_nothing_to_compare_with(peers):
    like = places(op("mkldnn_convolution", 0.5, shapes=KERNEL), peers)
    assert find(SLOW, *like, shortest_call_s=fastest(SLOW, *like)) == []


def test_a_mean_is_not_compared_since_it_holds_bursts():
    assert find(SLOW, *places(op("mkldnn_convolution", 0.5, shapes=KERNEL), 4)) == []


def test_what_is_slow_in_some_steps_only_is_not_slow_by_its_data():
    like = places(op("mkldnn_convolution", 0.5, shapes=KERNEL), 4)
    assert find(SLOW, *like, shortest_call_s=fastest(SLOW, *like, times=0.05)) == []


def test_element_wise_ops_are_compared_by_element_with_those_of_their_size():
    slow = op("mul", 10, shapes="[2,64,64,64]", module="Net.slow")
    near = places(op("mul", 0.3, shapes="[2,64,56,56]"), 4)
    far = places(op("mul", 0.3, shapes="[2,8,56,56]"), 4)
    suspected = only(slow, *near, shortest_call_s=fastest(slow, *near))
    assert told(suspected, "op", "shapes") == ("mul", "[2,64,64,64]")
    assert find(slow, *far, shortest_call_s=fastest(slow, *far)) == []


def test_products_of_other_shapes_are_no_like():
    like = places(op("mkldnn_convolution", 0.5, shapes="[2,64,56,56] [64,64,1,1]"), 4)
    assert find(SLOW, *like, shortest_call_s=fastest(SLOW, *like)) == []


def test_integers_and_halves_have_no_slow_values():
    for dtype, suspects in (("i64", 0), ("f16", 0), ("f32", 1)):
        total = op("mul", 10, shapes="[2,64,56,56]", dtypes=dtype)
        assert len(find(total, comparison=slowed(total))) == suspects


def test_short_calls_are_dispatch():
    for calls, suspects in ((200, 0), (20, 1)):
        total = op("mul", 2, calls=calls, shapes="[64]")
        assert len(find(total, comparison=slowed(total))) == suspects


def profile(self_s, calls=None):
    self_s = np.array(self_s)
    calls = np.ones_like(self_s, dtype=np.int64) if calls is None else np.array(calls)
    steps = self_s.shape[0]
    return OpProfile(
        keys=(SLOW.key, elsewhere(SLOW, "Net.other").key),
        calls=calls,
        self_s=self_s,
        module_calls=np.zeros_like(calls),
        child_events=np.zeros_like(calls),
        wall_s=self_s.sum(axis=1),
        process=np.zeros(steps, dtype=np.int64),
        sources={},
    )


def test_the_shortest_call_is_that_of_the_fastest_step():
    self_s = [[4e-3, 1e-3], [6e-3, 9e-3], [8e-3, 1e-3], [9e-3, 1e-3], [9e-3, 1e-3]]
    calls = [[2, 1], [2, 1], [8, 0], [1, 1], [1, 1]]
    assert list(shortest_calls(profile(self_s, calls)).values()) == pytest.approx([1e-3, 1e-3])


def test_few_steps_have_no_shortest_call():
    assert shortest_calls(profile([[1e-3, 1e-3]] * (LEAST_STEPS - 1))) == {}
    assert len(shortest_calls(profile([[1e-3, 1e-3]] * LEAST_STEPS))) == 2


def test_an_op_that_is_never_called_has_no_shortest_call():
    assert list(shortest_calls(profile([[1e-3, 0.0]] * LEAST_STEPS, [[1, 0]] * LEAST_STEPS))) == [SLOW.key]
