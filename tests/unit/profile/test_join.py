from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perfguard.profile.libraries.join import JoinedStep, implementations, join_step, primitive_totals
from perfguard.profile.libraries.verbose import parse_mkl_verbose, parse_verbose
from perfguard.profile.op_times.breakdown import break_down
from perfguard.profile.op_times.op_profile import profile_of, totals
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.op_spans import OpSpans, spans_of
from perfguard.profile.trace.trace import Trace, read_trace
from perfguard.records.steps.ops import OpKey, StepPhase
from tests.library_calls import BASE_NS, US, onednn_call

DATA = Path(__file__).parents[2] / "data" / "profile"


def key_of(op: str, phase: StepPhase = StepPhase.FORWARD) -> OpKey:
    return OpKey(phase=phase, module="Net.conv", op=f"aten::{op}", shapes="[4,4] [4,4]", dtypes="f32", layouts="")


def ops_of(*ops: tuple[str, int, int]) -> OpSpans:
    """Ops from (name, start, end), microseconds."""
    return OpSpans(
        start_ns=np.array([start for _, start, _ in ops], dtype=np.int64) * US,
        end_ns=np.array([end for _, _, end in ops], dtype=np.int64) * US,
        thread=np.zeros(len(ops), dtype=np.int64),
        key=np.arange(len(ops)),
        keys=tuple(key_of(name) for name, _, _ in ops),
        base_ns=BASE_NS,
    )


OPS = ops_of(
    ("convolution", 0, 100), ("mkldnn_convolution", 5, 95), ("empty", 8, 90), ("relu", 110, 130), ("linear", 140, 200)
)


def names_of(keys: tuple[OpKey | None, ...]) -> list[str | None]:
    return [key.op.removeprefix("aten::") if key is not None else None for key in keys]


def test_a_call_belongs_to_the_innermost_op_around_it_that_computes():
    joined = join_step(
        OPS, [onednn_call("convolution", 20, 50), onednn_call("eltwise", 115, 5), onednn_call("matmul", 150, 20)]
    )
    assert names_of(joined.keys) == ["mkldnn_convolution", "relu", "linear"]
    assert (joined.offset_s, joined.unplaced) == (0.0, 0)


def test_calls_are_kept_in_the_order_of_the_log():
    calls = [onednn_call("matmul", 150, 20, line=7), onednn_call("convolution", 20, 50, line=3)]
    joined = join_step(OPS, calls)
    assert [call.line for call in joined.calls] == [3, 7]
    assert names_of(joined.keys) == ["mkldnn_convolution", "linear"]


def test_what_lies_in_no_op_or_has_no_time_is_unplaced_and_counted():
    calls = [
        onednn_call("convolution", 20, 50),
        onednn_call("reorder", 102, 3, line=1),
        onednn_call("reorder", None, 3, line=2),
        onednn_call("reorder", 102, 3, line=3, operation="create:cache_hit"),
    ]
    joined = join_step(OPS, calls)
    assert names_of(joined.keys) == ["mkldnn_convolution", None, None, None]
    assert joined.unplaced == 2


def test_clocks_that_differ_are_brought_together():
    calls = [
        onednn_call("convolution", 20 + 700, 70),
        onednn_call("matmul", 150 + 700, 45),
        onednn_call("eltwise", 815, 5),
    ]
    joined = join_step(OPS, calls)
    assert names_of(joined.keys) == ["mkldnn_convolution", "linear", "relu"]
    assert joined.offset_s == pytest.approx(-700e-6, abs=20e-6)


def test_a_step_without_calls_or_ops_joins_nothing():
    assert join_step(OPS, []).calls == ()
    assert join_step(ops_of(), [onednn_call("convolution", 0, 1)]).keys == (None,)


def test_totals_add_up_executions_of_one_problem_at_one_place():
    calls = [
        onednn_call("convolution", 20, 50),
        onednn_call("convolution", 72, 10, line=1),
        onednn_call("convolution", 20, 1, line=2, operation="create:cache_hit"),
        onednn_call("convolution", 84, 2, line=3, problem="mb2"),
        onednn_call("convolution", 500, 7, line=4),
    ]
    first, second, third = primitive_totals([join_step(OPS, calls)])
    assert (first.calls, first.time_s, first.op) == (2, pytest.approx(60e-6), "aten::mkldnn_convolution")
    assert (first.phase, first.module, first.direction) == (StepPhase.FORWARD, "Net.conv", "FWD_D")
    assert (second.calls, second.phase, second.op) == (1, None, "")
    assert (third.calls, third.problem) == (1, "mb2")


def test_totals_are_means_over_the_steps():
    steps = [join_step(OPS, [onednn_call("convolution", 20, 50)]), join_step(OPS, [])]
    (total,) = primitive_totals(steps)
    assert (total.calls, total.time_s) == (0.5, pytest.approx(25e-6))
    assert primitive_totals([]) == ()


def test_implementations_of_an_op_are_not_those_of_its_reorders():
    calls = [
        onednn_call("reorder", 10, 5, implementation="jit:uni"),
        onednn_call("convolution", 20, 50, implementation="brg_conv_fwd:avx512_core", line=1),
        onednn_call("convolution", 72, 5, implementation="brg_conv_fwd:avx512_core", line=2),
        onednn_call("reorder", 80, 5, implementation="simple:any", line=3),
        onednn_call("reorder", 115, 5, implementation="jit:blk", line=4),
        onednn_call("matmul", 150, 5, implementation="ref:any", operation="create:cache_miss", line=5),
        onednn_call("reorder", 300, 5, implementation="jit:blk", line=6),
    ]
    found = implementations([join_step(OPS, calls)])
    assert found == {key_of("mkldnn_convolution"): ("brg_conv_fwd:avx512_core",), key_of("relu"): ("jit:blk",)}


def joined_in(folder: Path) -> tuple[Trace, JoinedStep]:
    """A step that `record_joined.py` recorded."""
    lines = (folder / "joined_step.log").read_text().splitlines(keepends=True)
    logs = parse_verbose(lines), parse_mkl_verbose(lines)
    assert [log.malformed for log in logs] == [0, 0]
    trace = read_trace(folder / "joined_step.json.gz")
    return trace, join_step(spans_of(trace, context_of(trace), 0), [call for log in logs for call in log.calls])


@pytest.fixture(scope="module")
def recorded():
    return joined_in(DATA)


def test_every_call_of_a_recorded_step_is_placed_without_moving_a_clock(recorded):
    _, joined = recorded
    assert (joined.unplaced, joined.offset_s) == (0, 0.0)
    assert None not in joined.keys


def test_recorded_calls_belong_to_ops_of_their_kind_module_and_phase(recorded):
    _, joined = recorded
    found = Counter(
        (call.primitive, call.direction, key.phase.value, key.module, key.op)
        for call, key in zip(joined.calls, joined.keys, strict=True)
        if call.executed
    )
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
    expected = {
        ("convolution", "FWD_D", "forward", "Net.stem", "aten::mkldnn_convolution"): 1,
        ("convolution", "BWD_W", "backward", "Net.stem", "aten::convolution_backward"): 1,
        ("matmul", "", "forward", "Net.head", "aten::addmm"): 1,
        ("matmul", "", "backward", "Net.head", "aten::mm"): 2,
        ("sgemm", "", "forward", "Net.block.self_attn", attention): 8,
        ("sgemm", "", "backward", "Net.block.self_attn", f"{attention}_backward"): 20,
        ("sgemm", "", "forward", "Net.block.linear1", "aten::addmm"): 1,
        ("sgemm", "", "backward", "Net.block.linear2", "aten::mm"): 2,
    }
    assert {kind: found[kind] for kind in expected} == expected


def test_a_recorded_step_is_broken_down_without_a_rest(recorded):
    trace, joined = recorded
    profile = profile_of(trace)
    breakdown = break_down(totals(profile), primitive_totals([joined]))
    assert breakdown.step_s == pytest.approx(profile.wall_s[0])
    assert sum(round(piece.share * 1000) for piece in breakdown.slices) == 1000
    assert sum(round(phase.share * 1000) for phase in breakdown.phases) == 1000
    assert breakdown.unplaced_calls == 0
    calls = {(piece.name, piece.direction): piece.calls for piece in breakdown.slices}
    assert calls["MKL gemm", "forward"] == 12
    assert calls["convolution", "BWD_W"] == 1
    assert calls["reorder", "backward"] == 3


@pytest.mark.torch
def test_every_call_of_a_step_of_this_torch_is_placed(tmp_path):
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, DATA / "record_joined.py", tmp_path]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    _, joined = joined_in(tmp_path)
    assert joined.calls
    assert joined.unplaced == 0
