from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.profile.op_times.breakdown import MKL_GEMM, OPTIMIZER_KERNELS, break_down
from perfguard.records.steps.ops import PYTHON_OP, OpKey, OpTotal, PrimitiveTotal, StepPhase

FORWARD, LOSS, BACKWARD, OPTIMIZER = (
    StepPhase.FORWARD, StepPhase.LOSS, StepPhase.BACKWARD, StepPhase.OPTIMIZER,
)  # fmt: skip


def op(
    name: str, ms: float, *, calls: float = 1, phase: StepPhase = FORWARD, module: str = "", shapes: str = ""
) -> OpTotal:
    key = OpKey(phase=phase, module=module, op=name, shapes=shapes, dtypes="", layouts="")
    return OpTotal(key=key, calls=calls, self_s=ms / 1e3)


def primitive(
    name: str, ms: float, *, at: str = "", calls: float = 1, phase: StepPhase | None = FORWARD, module: str = "",
    direction: str = "", library: str = "onednn",
) -> PrimitiveTotal:  # fmt: skip
    return PrimitiveTotal(
        library=library,
        primitive=name,
        direction=direction,
        implementation="jit",
        memory="",
        problem="",
        calls=calls,
        time_s=ms / 1e3,
        phase=phase,
        module=module,
        op=at,
    )


def times_ms(breakdown) -> dict[str, float]:
    return {f"{piece.name} {piece.direction}".strip(): piece.time_s * 1e3 for piece in breakdown.slices}


def calls_of(breakdown) -> dict[str, float]:
    return {f"{piece.name} {piece.direction}".strip(): piece.calls for piece in breakdown.slices}


def test_an_op_that_called_a_library_is_cut_into_its_primitives_and_their_dispatch():
    breakdown = break_down(
        [op("aten::mkldnn_convolution", 10, calls=2), op("aten::relu_", 4), op(PYTHON_OP, 6)],
        [
            primitive("convolution", 6, at="aten::mkldnn_convolution", calls=2, direction="FWD_D"),
            primitive("reorder", 1, at="aten::mkldnn_convolution", calls=4),
        ],
    )
    assert times_ms(breakdown) == pytest.approx(
        {
            "convolution FWD_D": 6,
            "(python)": 6,
            "element-wise forward": 4,
            "dispatch of convolution forward": 3,
            "reorder forward": 1,
        }
    )
    assert calls_of(breakdown)["dispatch of convolution forward"] == 2
    assert calls_of(breakdown)["reorder forward"] == 4
    assert breakdown.step_s == pytest.approx(20e-3)
    assert [piece.share for piece in breakdown.slices] == [0.3, 0.3, 0.2, 0.15, 0.05]


def test_primitives_that_seem_longer_than_their_op_share_its_time():
    breakdown = break_down(
        [op("aten::convolution_backward", 9, phase=BACKWARD)],
        [
            primitive("convolution", 8, at="aten::convolution_backward", phase=BACKWARD, direction="BWD_W"),
            primitive("convolution", 4, at="aten::convolution_backward", phase=BACKWARD, direction="BWD_D"),
        ],
    )
    assert times_ms(breakdown) == pytest.approx(
        {"convolution BWD_W": 6, "convolution BWD_D": 3, "dispatch of convolution backward": 0}
    )


def test_a_place_is_phase_module_and_op():
    breakdown = break_down(
        [op("aten::addmm", 4, module="Net.a"), op("aten::addmm", 4, module="Net.b"), op("aten::mm", 4, phase=BACKWARD)],
        [primitive("matmul", 3, at="aten::addmm", module="Net.a")],
    )
    assert times_ms(breakdown) == pytest.approx(
        {"matmul forward": 3, "dispatch of matmul forward": 1, "ATen matmul forward": 4, "ATen matmul backward": 4}
    )


def test_ops_of_several_shapes_at_one_place_share_its_primitives():
    breakdown = break_down(
        [op("aten::mm", 2, shapes="[1]"), op("aten::mm", 3, shapes="[2]")], [primitive("matmul", 4, at="aten::mm")]
    )
    assert times_ms(breakdown) == pytest.approx({"matmul forward": 4, "dispatch of matmul forward": 1})


def test_mkls_products_are_one_kind_its_other_routines_go_by_name():
    breakdown = break_down(
        [op("aten::mm", 5), op("aten::bmm", 5), op("aten::addmv_", 5)],
        [
            primitive("sgemm", 3, at="aten::mm", library="mkl"),
            primitive("dgemm_batch", 2, at="aten::bmm", library="mkl", calls=3),
            primitive("sgemv", 4, at="aten::addmv_", library="mkl"),
        ],
    )
    found = times_ms(breakdown)
    assert found[f"{MKL_GEMM} forward"] == pytest.approx(5)
    assert found["MKL sgemv forward"] == pytest.approx(4)
    assert calls_of(breakdown)[f"{MKL_GEMM} forward"] == 4


def test_the_rest_of_attention_is_its_own_work():
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    breakdown = break_down([op(name, 9)], [primitive("sgemm", 5, at=name, library="mkl", calls=64)])
    assert times_ms(breakdown) == pytest.approx({"MKL gemm forward": 5, "attention forward": 4})


def test_all_kernels_of_the_optimizer_are_one_kind_but_its_python_is_not():
    breakdown = break_down(
        [
            op("aten::_foreach_add_", 2, phase=OPTIMIZER),
            op("aten::_fused_adam_", 3, phase=OPTIMIZER),
            op(PYTHON_OP, 1, phase=OPTIMIZER),
        ],
        [],
    )
    assert times_ms(breakdown) == pytest.approx({OPTIMIZER_KERNELS: 5, "(python)": 1})


def test_time_in_no_op_is_one_slice_whatever_is_annotated():
    breakdown = break_down([op(PYTHON_OP, 1), op("my annotation", 2, phase=BACKWARD)], [])
    assert times_ms(breakdown) == pytest.approx({"(python)": 3})


@pytest.mark.parametrize(
    "stray",
    [
        primitive("reorder", 2, at="aten::copy_", phase=None, calls=5),
        primitive("reorder", 2, at="aten::clone", calls=5),
        primitive("reorder", 2, at="aten::copy_", phase=BACKWARD, calls=5),
    ],
)
def test_calls_of_no_known_op_are_told_and_not_counted_twice(stray):
    breakdown = break_down([op("aten::copy_", 3)], [stray])
    assert times_ms(breakdown) == pytest.approx({"copy forward": 3})
    assert (breakdown.unplaced_calls, breakdown.unplaced_s) == (5, pytest.approx(2e-3))


def test_the_phases_of_a_step():
    breakdown = break_down(
        [
            op("aten::mkldnn_convolution", 4, calls=2),
            op(PYTHON_OP, 1, calls=9),
            op("aten::nll_loss_forward", 1, phase=LOSS),
            op("aten::convolution_backward", 12, calls=2, phase=BACKWARD),
            op("aten::_fused_adam_", 2, phase=OPTIMIZER),
        ],
        [primitive("convolution", 3, at="aten::mkldnn_convolution")],
    )
    load, forward, loss, backward, optimizer = breakdown.phases
    assert [phase.phase for phase in breakdown.phases] == list(StepPhase)
    assert [phase.share for phase in breakdown.phases] == [0.0, 0.25, 0.05, 0.6, 0.1]
    assert (load.calls, load.time_s) == (0, 0)
    assert (forward.calls, forward.primitives_s, forward.python_s) == (2, pytest.approx(3e-3), pytest.approx(1e-3))
    assert (loss.calls, backward.calls, optimizer.calls) == (1, 2, 1)


def test_a_step_of_nothing_has_no_shares():
    breakdown = break_down([], [])
    assert (breakdown.step_s, breakdown.slices) == (0.0, ())
    assert [phase.share for phase in breakdown.phases] == [0.0] * 5


def test_thirds_are_printed_as_a_hundred_percent():
    names = ("aten::relu", "aten::copy_", "aten::sum")
    shares = [piece.share for piece in break_down([op(name, 1) for name in names], []).slices]
    assert [f"{share * 100:.1f}" for share in shares] == ["33.4", "33.3", "33.3"]


OPS = ("aten::mm", "aten::mkldnn_convolution", "aten::relu", "aten::_softmax", PYTHON_OP, "torchvision::nms", "Node0")
op_totals = st.builds(
    op,
    st.sampled_from(OPS),
    st.floats(0, 1e3),
    calls=st.integers(0, 9),
    phase=st.sampled_from(StepPhase),
    module=st.sampled_from(["", "Net.a"]),
)
primitive_totals = st.builds(
    primitive,
    st.sampled_from(["convolution", "matmul", "reorder"]),
    st.floats(0, 1e3),
    at=st.sampled_from(OPS),
    calls=st.integers(0, 9),
    phase=st.one_of(st.none(), st.sampled_from(StepPhase)),
    module=st.sampled_from(["", "Net.a"]),
    direction=st.sampled_from(["", "FWD_D", "BWD_W"]),
    library=st.sampled_from(["onednn", "mkl"]),
)


@given(st.lists(op_totals, max_size=12), st.lists(primitive_totals, max_size=12))
def test_both_cuts_add_up_to_the_step_in_seconds_in_shares_and_in_calls(totals, primitives):
    breakdown = break_down(totals, primitives)
    step_s = math.fsum(total.self_s for total in totals)
    assert breakdown.step_s == pytest.approx(step_s)
    assert math.fsum(piece.time_s for piece in breakdown.slices) == pytest.approx(step_s, abs=1e-12)
    assert math.fsum(phase.time_s for phase in breakdown.phases) == pytest.approx(step_s, abs=1e-12)
    for parts in (breakdown.slices, breakdown.phases):
        tenths = [part.share * 1000 for part in parts]
        assert sum(map(round, tenths)) == (1000 if breakdown.step_s else 0)
        assert all(part.share == pytest.approx(part.time_s / step_s, abs=1e-3) for part in parts if step_s)
        assert all(part.time_s >= -1e-12 for part in parts)
    counted = math.fsum(total.calls for total in totals) + math.fsum(primitive.calls for primitive in primitives)
    assert math.fsum(piece.calls for piece in breakdown.slices) + breakdown.unplaced_calls == pytest.approx(counted)
