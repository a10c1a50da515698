"""The victim's cases for pytest-benchmark: `pytest pytest_suite.py`."""

import pytest
import torch
import victim


@pytest.mark.parametrize("factory", victim.CASES, ids=lambda factory: factory.__name__)
def test_case(benchmark, factory):
    torch.manual_seed(1)
    call = factory()
    call()
    benchmark(call)
