from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.projection.arguments import Work
from perfguard.profile.projection.projection import roofline_point
from perfguard.records.steps.projection import Roof, RooflineCeilings
from tests.recorded_ops import problem, tensor

CEILINGS = RooflineCeilings(
    flops_per_s={"fp32": 100e9, "bf16": 400e9}, bytes_per_s=10e9, threads=2, is_beyond_caches=True
)
POSITIVE = st.floats(1.0, 1e12)


def point(work, *, observed_s=1e-3, calls=1.0, alone_s=None):
    call = problem("aten::mm", tensor(2, 2), observed_s=observed_s, calls=calls, assumed=("a",))
    return roofline_point(call, work, CEILINGS, alone_s=alone_s)


def test_a_problem_with_few_operations_a_byte_is_bound_by_memory():
    found = point(Work(flops=2e6, size_bytes=1e6, dtype="fp32"), alone_s=2e-4)
    assert (found.roof, found.best_s) == (Roof.MEMORY, pytest.approx(1e-4))
    assert found.intensity == pytest.approx(2)
    assert found.achieved_flops_per_s == pytest.approx(2e9)
    assert found.achieved_bytes_per_s == pytest.approx(1e9)
    assert found.share_ratio == pytest.approx(0.1)
    assert found.alone_share_ratio == pytest.approx(0.5)


@pytest.mark.parametrize(("dtype", "peak"), CEILINGS.flops_per_s.items())
def test_a_problem_with_many_is_bound_by_the_peak_of_its_dtype(dtype, peak):
    found = point(Work(flops=1e9, size_bytes=1e6, dtype=dtype))
    assert found.roof is Roof.COMPUTE
    assert found.best_s == pytest.approx(1e9 / peak)
    assert found.alone_share_ratio is None


def test_the_time_of_a_call_is_the_problems_divided_by_its_calls():
    found = point(Work(flops=None, size_bytes=1e6, dtype="fp32"), observed_s=4e-3, calls=8)
    assert (found.call_s, found.share_ratio) == (pytest.approx(5e-4), pytest.approx(0.2))


def test_what_is_counted_in_bytes_only_is_bound_by_memory_whatever_its_dtype():
    found = point(Work(flops=None, size_bytes=1e6, dtype="int64", assumed=("b",)))
    assert (found.roof, found.intensity) == (Roof.MEMORY, None)
    assert found.assumed == ("a", "b")


def test_data_out_of_caches_is_faster_than_its_roof():
    assert point(Work(flops=None, size_bytes=1e8, dtype="fp32")).share_ratio > 1


@pytest.mark.parametrize(
    ("work", "observed_s"),
    [(Work(flops=1e9, size_bytes=1e6, dtype="fp16"), 1e-3), (Work(flops=1e9, size_bytes=1e6, dtype="fp32"), 0.0)],
)
def test_there_is_no_point_without_a_peak_or_a_time(work, observed_s):
    assert point(work, observed_s=observed_s) is None


@given(flops=POSITIVE, size_bytes=POSITIVE)
def test_the_roof_is_the_lower_of_both_ceilings(flops, size_bytes):
    found = point(Work(flops=flops, size_bytes=size_bytes, dtype="fp32"))
    expected = min(CEILINGS.flops_per_s["fp32"], found.intensity * CEILINGS.bytes_per_s)
    assert flops / found.best_s == pytest.approx(expected)
    assert found.share_ratio == pytest.approx(found.achieved_flops_per_s / expected)
