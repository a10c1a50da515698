"""Benchmarks that are not worth timing, and what is said of them. No torch: they are plain Python."""

from __future__ import annotations

import pytest

from perfguard.runner.process.arm_worker import CaseRefused
from tests.real_workers import plain_case
from tests.worker_rigs import completed, failures


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def bad(): raise ValueError('no data')", "ValueError: no data"),
        ("def bad(): return lambda: 1 / 0", "ZeroDivisionError: division by zero"),
        ("def bad(): return None", "returns nothing; it must return the function to time"),
        ("def bad(): return 3", "returns int; it must return the function to time"),
        ("def bad(): return lambda: None", "returns nothing, so its result cannot be checked"),
        ("def bad(): return lambda: 'loss'", "returns str; return the loss as a tensor or a float"),
        ("def bad(): return lambda: float('nan')", "computes nan"),
        ("def bad(): return lambda: float('-inf')", "computes -inf"),
        ("def bad(): return iter([1.0, 2.0]).__next__", "changes its result between calls (1, then 2)"),
        ("state = []\ndef bad():\n state.append(0)\n n = float(len(state))\n return lambda: n", "between set-ups"),
        ("import os\ndef bad(): return lambda: float(os.urandom(6)[0] * 256 + os.urandom(6)[1])", "changes its"),
        ("import sys\ndef bad(): sys.exit(4)", "SystemExit"),
        ("def bad(n): return lambda: n", "TypeError"),
        ("class bad:\n def __init__(self): self.x = 1", "returns bad; it must return the function to time"),
        ("import absent_dependency\ndef bad(): return lambda: 1.0", "No module named 'absent_dependency'"),
        ("def bad(:", "SyntaxError"),
    ],
)
def test_an_unsound_benchmark_is_refused_with_its_reason(rig, source, said):
    with rig(source).worker() as (worker, _), pytest.raises(CaseRefused) as refused:
        worker.prepare(plain_case("bad"), seed=1, check=True)
    assert said in refused.value.reason
    assert not refused.value.missing


def test_the_worker_lives_on_after_refusing_a_case(rig):
    with rig("def bad(): raise ValueError('no data')").worker() as (worker, _):
        with pytest.raises(CaseRefused):
            worker.prepare(plain_case("bad"), seed=1, check=True)
        assert worker.prepare(plain_case("good"), seed=1, check=True).digest == sum(range(1000))


def test_a_benchmark_that_the_tree_does_not_hold_is_missing(rig):
    with rig("").worker() as (worker, _), pytest.raises(CaseRefused) as refused:
        worker.prepare(plain_case("absent"), seed=1, check=True)
    assert refused.value.missing


def test_a_case_that_raises_while_it_is_timed_is_dropped_alone(rig):
    made = rig(
        """
        calls = []
        def bad():
            def call():
                calls.append(0)
                if len(calls) > 4:
                    raise OSError("disk gone")
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events)["bad"].quoted == "OSError: disk gone (bench.py:7)"
    assert completed(events) == ["good", "good"]


def test_a_result_that_turns_into_nan_while_it_is_timed_fails_the_case(rig):
    made = rig(
        """
        calls = []
        def bad():
            def call():
                calls.append(0)
                return 1.0 if len(calls) < 4 else float("nan")
            return call
        """
    )
    events = made.measure("bad", "good")
    assert "computes nan" in failures(events)["bad"].quoted
    assert completed(events) == ["good", "good"]


def test_a_check_that_raises_refuses_its_case(rig):
    made = rig("def bad():\n call = lambda: 1.0\n call.check = lambda: 1 / 0\n return call")
    assert failures(made.measure("bad", "good"))["bad"].quoted == "ZeroDivisionError: division by zero (bench.py:3)"
