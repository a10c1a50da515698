"""Calls that need a fresh state before each."""

from __future__ import annotations

import pytest

from perfguard.worker.cases import PreparedCase
from perfguard.worker.timing.samples import Renewed, SampleTimer
from perfguard.worker.timing.signals import Meters
from tests.worker_replies import Parent


class Log:
    """A state that notes what is done with it."""

    def __init__(self, *, most):
        self.done = ""
        self.call = Renewed(self._call, self._renew, most=most)

    def _call(self):
        self.done += "c"
        return float(len(self.done))

    def _renew(self):
        self.done += "r"


def timer_of(log, parent):
    return SampleTimer(parent, PreparedCase("case", (log.call,), 0.0), Meters(), inner_loops=3, spin_s=0.0)


def test_every_call_finds_a_fresh_state_and_none_is_made_in_vain():
    log = Log(most=64)
    timer_of(log, Parent())(2)
    assert log.done == "rc" * (2 + 6)  # two calls warm up


def test_a_sample_has_no_more_calls_than_their_renewals_allow_and_says_how_many():
    log, parent = Log(most=4), Parent()
    seconds = timer_of(log, parent)(2)
    assert log.done.count("c") == 2 + 4
    (told,) = (reply for reply in parent.replies if reply["reply"] == "sample")
    assert told["iterations"] == 4
    assert seconds == pytest.approx(6 * told["value_s"])  # pyperf divides by the loops that it asked for


def test_signals_of_all_calls_of_a_sample_are_told_together():
    class Counting:
        """Each call takes 0.3 s of CPU and faults in two pages; the peak of memory grows."""

        calls = 0

        def start(self):
            return self.calls

        def stop(self):
            self.calls += 1
            return self.calls

        def between(self, before, after, *, iterations):
            assert after == before + 1
            return {"cpu_s": 0.3 / iterations, "minor_faults": 2, "peak_memory_bytes": 100 * after, "energy_j": None}

    parent = Parent()
    case = PreparedCase("case", (Log(most=64).call,), 0.0)
    SampleTimer(parent, case, Counting(), inner_loops=3, spin_s=0.0)(1)
    (told,) = (reply for reply in parent.replies if reply["reply"] == "sample")
    assert told["cpu_s"] == pytest.approx(0.3)  # for one iteration
    assert (told["minor_faults"], told["peak_memory_bytes"], told["energy_j"]) == (6, 300, None)
