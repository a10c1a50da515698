from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.codec import from_builtins, to_builtins
from perfguard.records.facts import fact
from perfguard.records.run import Arm
from perfguard.records.steps.ops import StepPhase
from perfguard.records.steps.projection import (
    CaseProjection,
    Projected,
    Projection,
    Roof,
    RooflineCeilings,
    RooflinePoint,
)
from perfguard.report.terminal.projection import efficiency_line, identity_line, render_projection, roofline_chart
from perfguard.units import format_bandwidth, format_flops
from tests.changed_values import replace
from tests.printed_text import printed

NEW = fact("replay.refused", error="it is [new]")
MATMUL = Projected(
    name="aten::mm",
    detail="[2,3] [3,4]  f32 f32",
    phases=(StepPhase.FORWARD, StepPhase.BACKWARD),
    modules=("Net.a",),
    calls=12,
    observed_s=6e-3,
    projected_s=3e-3,
    implementation="default",
    assumed=("x=1",),
)
UNKNOWN = replace(MATMUL, name="aten::[new]", observed_s=1e-3, projected_s=None, reason=NEW, phases=(), assumed=())
OTHER = replace(UNKNOWN, name="aten::other", observed_s=5e-4)
STEP = Projection(
    step_s=10e-3,
    ops_s=7.5e-3,
    covered_s=6e-3,
    projected_s=3e-3,
    kernel_ratio=0.5,
    framework_ratio=0.45,
    problems=(MATMUL, UNKNOWN, OTHER),
)
CEILINGS = RooflineCeilings(flops_per_s={"fp32": 100e9}, bytes_per_s=10e9, threads=2, is_beyond_caches=True)
POINT = RooflinePoint(
    name="aten::mm",
    detail="[2,3] [3,4]  f32 f32",
    dtype="fp32",
    calls=12,
    flops=1e9,
    size_bytes=1e7,
    call_s=50e-3,
    alone_s=20e-3,
    roof=Roof.COMPUTE,
    best_s=10e-3,
)
STREAM = replace(POINT, name="aten::add", flops=None, roof=Roof.MEMORY, call_s=0.5e-3, best_s=1e-3, alone_s=None)
CASE = CaseProjection(
    case_id="step.x[a=1]",
    arm=Arm.CANDIDATE,
    ops=STEP,
    primitives=None,
    ceilings=CEILINGS,
    roofline=(POINT, STREAM),
    notes=(fact("projection.no_ceilings", error="not [there]"),),
)


def text_of(case, width=200):
    return printed(render_projection(case, name=case.case_id), width)


def test_the_step_is_shown_as_the_sum_of_its_parts():
    assert identity_line(STEP, "op") == (
        "step 10.00 ms = alone 3.000 ms + lost in ops 3.000 ms + not replayed 1.500 ms + in no op 2.500 ms"
    )
    faster = replace(STEP, projected_s=7e-3)
    assert "- lost in ops 1.000 ms" in identity_line(faster, "op")


def test_both_efficiencies_come_with_what_they_cover():
    assert efficiency_line(STEP, "op") == (
        "kernel efficiency 50 %, framework efficiency 45 %; 80 % of the time in ops was replayed, 60 % of the step"
    )
    assert "kernel efficiency -" in efficiency_line(replace(STEP, kernel_ratio=None), "op")


def test_everything_is_shown():
    text = text_of(CASE)
    for words in (
        "projection of step.x[a=1]",
        "forward/backward",
        "+3.000 ms",
        "assumed of aten::mm: x=1",
        "aten::[new] and 1 more",
        "it is [new]",
        "1.500 ms",
        "ceilings with 2 threads: fp32 100 GFLOP/s; memory 10 GB/s",
        "20 GFLOP/s",
        "compute",
        "50 %",
        "the data came out of caches",
        "not [there]",
    ):
        assert words in text


def test_primitives_are_shown_as_ops_are():
    text = text_of(replace(CASE, primitives=replace(STEP, problems=(replace(MATMUL, name="convolution BWD_W"),))))
    assert "of the time in primitives was replayed" in text
    assert "convolution BWD_W" in text


def test_a_projection_without_ceilings_has_no_roofline():
    assert "ceilings" not in text_of(replace(CASE, ceilings=None, roofline=()))


def test_a_projection_of_nothing_can_be_shown():
    empty = replace(STEP, problems=(), ops_s=0.0, covered_s=0.0, projected_s=0.0, kernel_ratio=None)
    assert "kernel efficiency -" in text_of(replace(CASE, ops=empty, roofline=()))


def test_a_projection_comes_back_from_json():
    assert from_builtins(to_builtins(CASE), CaseProjection, source="test") == CASE


def test_the_chart_shows_problems_under_their_roof():
    title, *rows, axis = roofline_chart([STREAM, POINT], CEILINGS, "fp32")
    assert title == "fp32: peak 100 GFLOP/s, ridge at 10.0 FLOP a byte"
    assert rows[0].startswith("100 GFLOP/s |")
    assert rows[0].rstrip().endswith("---")
    assert rows[-1].strip().startswith("100 MFLOP/s |")
    (row,) = [row for row in rows if "B" in row.partition("|")[2]]
    assert rows.index(row) in range(2, 5)
    assert axis.split()[0] == "1"
    assert not any("A" in row.partition("|")[2] for row in rows)


def test_a_dtype_without_a_peak_or_a_problem_has_no_chart():
    assert roofline_chart([POINT], CEILINGS, "bf16") == []
    assert roofline_chart([replace(POINT, dtype="bf16")], CEILINGS, "bf16") == []
    assert roofline_chart([STREAM], CEILINGS, "fp32") == []


@given(
    st.lists(st.tuples(st.floats(1, 1e15), st.floats(1, 1e12), st.floats(1e-9, 100)), min_size=1, max_size=30),
    st.floats(1e6, 1e15),
    st.floats(1e6, 1e13),
)
def test_every_chart_fits_its_frame(problems, peak, bandwidth):
    points = [
        replace(POINT, flops=flops, size_bytes=size_bytes, call_s=call_s) for flops, size_bytes, call_s in problems
    ]
    ceilings = replace(CEILINGS, flops_per_s={"fp32": peak}, bytes_per_s=bandwidth)
    lines = roofline_chart(points, ceilings, "fp32")
    assert len({line.find("|") for line in lines[1:-1]}) == 1
    assert max(map(len, lines)) < 100
    assert any(mark in line.partition("|")[2] for line in lines[1:-1] for mark in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.34e10, "23.4 GFLOP/s"), (1.5e12, "1.5 TFLOP/s"), (950e6, "950 MFLOP/s"), (12.0, "12 FLOP/s"), (None, "-")],
)
def test_rates_have_three_digits(value, text):
    assert format_flops(value) == text


def test_bandwidths_are_decimal():
    assert format_bandwidth(11.2e9) == "11.2 GB/s"
