from __future__ import annotations

import math
import random

import pytest

from perfguard.worker.results import TimedLook, UnsoundCaseError


class Benchmark:
    """Draws a number, and gives it back."""

    def __init__(self):
        self.drawn = 0.0

    def __call__(self):
        return self.drawn


class Variable(Benchmark):
    def vary(self):
        self.drawn = random.random()


def look_at(call, *, seed=1, place=2):
    look = TimedLook(call, seed=seed, case_id="x")
    return look.is_varied, look.checks(call(), seed=place)


def test_inputs_are_drawn_anew_under_the_seed():
    found = [look_at(Variable(), seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0][0]
    assert set(found[0][1]) == {"timed_result"}


def test_a_benchmark_without_other_inputs_is_looked_at_as_it_is():
    assert look_at(Benchmark()) == (False, {"timed_result": 0.0})


def test_what_is_no_number_is_not_compared():
    assert look_at(lambda: "text") == (False, {})


def test_a_tensor_that_may_compute_when_it_is_looked_at_is_not_compared():
    torch = pytest.importorskip("torch")

    class Lazy(torch.Tensor):
        pass

    plain = torch.arange(8.0)
    assert set(look_at(lambda: plain)[1]) == {"timed_elements"}
    assert set(look_at(lambda: torch.nn.Parameter(plain))[1]) == {"timed_elements"}
    assert look_at(lambda: plain.as_subclass(Lazy)) == (False, {})
    assert look_at(lambda: plain.sum().as_subclass(Lazy)) == (False, {})


def test_a_check_that_vary_returns_stands_for_the_result():
    call = Benchmark()
    call.vary = lambda: lambda: {"state_norm": 3}
    assert look_at(call) == (True, {"timed_state_norm": 3.0})


def test_a_result_that_is_not_finite_is_refused():
    with pytest.raises(UnsoundCaseError, match="x computes nan"):
        look_at(lambda: math.nan)
