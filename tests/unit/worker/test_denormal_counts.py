from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfguard.worker import program
from perfguard.worker.program import NamedTensor, count_denormals, state_of
from perfguard.worker.torch_env import flushes_denormals

pytestmark = pytest.mark.torch

SMALLEST_F32 = 2.0**-126
SMALLEST_F64 = 2.0**-1022


def count(*tensors):
    """Values looked at, denormals, and where most of them are."""
    groups = {"parameters": [NamedTensor(name=f"t{number}", tensor=tensor) for number, tensor in enumerate(tensors)]}
    found = count_denormals(groups)
    return (found[0].values, found[0].denormals, found[0].worst) if found else None


@settings(deadline=None)  # the first call of an op takes its time
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_exactly_the_denormal_values_count(torch, values):
    expected = sum(0 < abs(value) < SMALLEST_F32 for value in values)
    assert count(torch.tensor(values, dtype=torch.float32))[:2] == (len(values), expected)


@pytest.mark.parametrize(
    ("dtype", "normal", "denormal"),
    [
        ("float32", SMALLEST_F32, SMALLEST_F32 / 2),
        ("float64", SMALLEST_F64, SMALLEST_F64 / 2),
        ("bfloat16", SMALLEST_F32, SMALLEST_F32 / 2),
    ],
)
def test_each_format_has_its_own_border(torch, dtype, normal, denormal):
    values = [normal, -normal, denormal, -denormal, 0.0, -0.0, math.inf, math.nan, 1.0]
    assert count(torch.tensor(values, dtype=getattr(torch, dtype)))[:2] == (9, 2)


def test_the_tensor_with_the_largest_share_is_named(torch):
    many = torch.cat([torch.full((3,), 1e-41), torch.ones(997)])
    assert count(many, torch.tensor([1e-41, 1.0]), torch.ones(5)) == (1007, 4, "t1")


def test_without_any_no_tensor_is_named(torch):
    assert count(torch.ones(3)) == (3, 0, "")


def test_formats_that_flushing_does_not_help_are_not_looked_at(torch):
    assert count(torch.tensor([6e-8], dtype=torch.float16), torch.ones(3, dtype=torch.int64)) is None


def test_what_has_no_memory_to_look_at_is_passed_over(torch):
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2), (4,), check_invariants=True)
    assert count(sparse, torch.empty(3, device="meta"), torch.empty(0)) is None


def test_layouts_of_any_kind_are_read_in_place(torch):
    image = torch.full((2, 3, 4, 4), 1e-41).contiguous(memory_format=torch.channels_last)
    assert count(image, torch.full((4, 6), 1e-41).t(), torch.tensor(1e-41), torch.full((1,), 1e-41).expand(7)) == (
        96 + 24 + 1 + 7,
        96 + 24 + 1 + 7,
        "t0",
    )


def test_parameters_are_looked_at_without_a_gradient(torch):
    parameter = torch.nn.Parameter(torch.full((4,), 1e-41))
    assert count(parameter)[1] == 4
    assert parameter.grad is None


def test_of_a_large_tensor_a_part_is_looked_at_spread_over_it(torch, monkeypatch):
    monkeypatch.setattr(program, "MAX_VALUES", 100)
    half = torch.cat([torch.ones(5_000), torch.full((5_000,), 1e-41)])
    for tensor in (half, half.view(1000, 10), half.view(10, 1000).t()):
        values, found, _ = count(tensor)
        assert 90 <= values <= 110
        assert found == values / 2


def test_flushing_is_seen(torch):
    was, values = flushes_denormals(torch), torch.tensor([1e-41, 1.0])
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush denormals")
        assert flushes_denormals(torch)
        # Flushing hides denormals from arithmetic, not from their count.
        assert count(values)[:2] == (2, 1)
    finally:
        torch.set_flush_denormal(was)
    assert flushes_denormals(torch) is was


def test_the_state_of_optimizers_is_named_by_its_parameter(torch):
    known, unknown = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([known, unknown])
    for parameter in (known, unknown):
        parameter.grad = torch.ones(3)
    optimizer.step()
    names = {named.name for named in state_of([optimizer], {id(known): "Net.weight"})}
    assert {"exp_avg of Net.weight", "exp_avg_sq of Net.weight", "exp_avg of a parameter"} <= names


def test_a_group_without_values_is_left_out(torch):
    groups = {"parameters": [NamedTensor(name="w", tensor=torch.ones(3))], "gradients": []}
    assert [each.group for each in count_denormals(groups)] == ["parameters"]
