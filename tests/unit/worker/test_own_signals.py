"""What a benchmark says of its own calls beside their time."""

from __future__ import annotations

import math

import pytest

from perfguard.worker.cases import PreparedCase
from perfguard.worker.results import UnsoundCaseError
from perfguard.worker.timing.samples import SampleTimer
from perfguard.worker.timing.signals import Meters
from tests.worker_replies import Parent


class Counted:
    """A call that says how often it was called since it was last asked, and what its processes used."""

    def __init__(self, **further):
        self.calls, self.further = 0, further

    def __call__(self):
        self.calls += 1
        return 1.0

    def signals(self):
        calls, self.calls = self.calls, 0
        return {"calls": calls, "cpu_s": 5.0, **self.further}


def timed(call):
    parent = Parent()
    SampleTimer(parent, PreparedCase("case", (call,), 0.0), Meters(), inner_loops=3, spin_s=0.0)(1)
    (sample,) = (reply for reply in parent.replies if reply["reply"] == "sample")
    return sample


def test_own_signals_are_of_the_calls_of_the_sample_alone():
    assert timed(Counted())["own"] == {"calls": 3.0}


def test_cpu_time_of_a_benchmarks_processes_is_added_to_the_workers():
    assert 5.0 <= timed(Counted())["cpu_s"] < 6.0


def test_a_call_without_signals_of_its_own_has_none():
    assert "own" not in timed(lambda: 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_signal_that_is_no_number_is_refused_by_name(value):
    with pytest.raises(UnsoundCaseError, match=f"own signal 'load' is {value}"):
        timed(Counted(load=value))
