from __future__ import annotations

import math

import pytest

from perfguard.worker.results import UnsoundCaseError, checks_of

STEP = {"id": "x", "phase": "step"}
FORWARD = {"id": "x", "phase": "forward"}


def timed(check=None):
    def call():
        return 1.5

    if check is not None:
        call.check = check
    return call


def test_the_scalar_of_a_step_is_its_loss_and_of_anything_else_a_result():
    assert checks_of(timed(), 1.5, STEP) == {"loss": 1.5}
    assert checks_of(timed(), 2, FORWARD) == {"result": 2.0}


def test_a_benchmark_may_name_numbers_of_its_own():
    found = checks_of(timed(lambda: {"gradient_norm": 3, "accuracy": 0.5}), 1.5, STEP)
    assert found == {"loss": 1.5, "gradient_norm": 3.0, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (3.0, "the check of x gives float; it must be a function that returns a mapping"),
        ({"norm": "large"}, "gives str as 'norm'; it must be a number"),
        ({"norm": None}, "gives NoneType as 'norm'; it must be a number"),
        ({"norm": math.nan}, "x computes nan as norm"),
        ({"norm": math.inf}, "x computes inf as norm"),
    ],
)
def test_a_check_that_gives_no_finite_numbers_is_refused(told, said):
    with pytest.raises(UnsoundCaseError, match=said):
        checks_of(timed(lambda: told), 1.5, STEP)


def test_a_check_that_is_no_function_is_refused():
    with pytest.raises(UnsoundCaseError, match="gives str; it must be a function"):
        checks_of(timed("norm"), 1.5, STEP)
