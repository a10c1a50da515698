"""Traces of torch itself, recorded by `tests/data/profile/record.py`; the last test records them anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perfguard.profile.op_times.op_profile import profile_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.events import EventKind
from perfguard.profile.trace.trace import read_trace
from perfguard.records.steps.ops import PYTHON_OP, StepPhase

DATA = Path(__file__).parents[2] / "data" / "profile"
FORWARD, LOSS, BACKWARD, OPTIMIZER = StepPhase.FORWARD, StepPhase.LOSS, StepPhase.BACKWARD, StepPhase.OPTIMIZER


def check_marked_step(path):
    trace = read_trace(path)
    context = context_of(trace)
    assert trace.notes == ()
    assert context.windows.size == 1
    profile = profile_of(trace)
    self_ns = np.rint(profile.self_s * 1e9).astype(np.int64)
    assert self_ns.sum() == np.rint(profile.wall_s[0] * 1e9)
    assert (self_ns >= 0).all()
    places = {(key.op, key.phase, key.module) for key in profile.keys if profile.calls[0, profile.keys.index(key)]}
    assert {
        ("aten::randn", StepPhase.LOAD, ""),
        ("aten::conv2d", FORWARD, "Net.stem.0"),
        ("aten::batch_norm", FORWARD, "Net.stem.1"),
        ("aten::relu", FORWARD, "Net.stem.2"),
        ("aten::flatten", FORWARD, "Net"),
        ("aten::linear", FORWARD, "Net.head"),
        ("aten::cross_entropy_loss", LOSS, "CrossEntropyLoss"),
        ("aten::ones_like", LOSS, ""),
        ("aten::_log_softmax_backward_data", BACKWARD, "CrossEntropyLoss"),
        ("AddmmBackward0", BACKWARD, "Net.head"),
        ("aten::threshold_backward", BACKWARD, "Net.stem.2"),
        ("aten::native_batch_norm_backward", BACKWARD, "Net.stem.1"),
        ("aten::convolution_backward", BACKWARD, "Net.stem.0"),
        ("aten::_fused_adam_", OPTIMIZER, "Adam"),
        (PYTHON_OP, OPTIMIZER, "Adam"),
    } <= places
    (convolution,) = [key for key in profile.keys if key.op == "aten::convolution_backward"]
    assert convolution.shapes.startswith("[2,8,6,6] [2,3,8,8] [8,3,3,3]")
    assert convolution.dtypes.startswith("f32 f32 f32")
    assert convolution.layouts.startswith("contiguous contiguous contiguous")
    return trace, context, profile


def check_sources(profile):
    lines = {key.op: source for key, source in profile.sources.items()}
    assert lines["aten::conv2d"] == "/home/user/train.py:11"
    assert lines["aten::convolution_backward"] == "/home/user/train.py:11"
    assert lines["aten::cross_entropy_loss"] == "/home/user/train.py:20"
    assert lines["aten::_fused_adam_"] == "/home/user/train.py:20"


def check_scheduled_steps(path):
    profile = profile_of(read_trace(path))
    assert profile.wall_s.size == 2
    self_ns = np.rint(profile.self_s * 1e9).astype(np.int64)
    assert self_ns.sum(axis=1).tolist() == np.rint(profile.wall_s * 1e9).tolist()
    steady = [key.op != PYTHON_OP for key in profile.keys]
    assert (profile.calls[0, steady] == profile.calls[1, steady]).all()
    modules = {key.op: (key.phase, key.module) for key in profile.keys}
    assert modules["aten::convolution_backward"] == (BACKWARD, "Net_0.Sequential_0.Conv2d_0")
    assert modules["aten::cross_entropy_loss"] == (LOSS, "CrossEntropyLoss_0")


def test_a_marked_step_of_torch():
    trace, context, profile = check_marked_step(DATA / "marked_step.json.gz")
    check_sources(profile)
    allocations = (trace.kind == EventKind.ALLOCATION) & (context.step == 0)
    assert allocations.any()
    assert (trace.size_bytes[allocations] > 0).all()


def test_scheduled_steps_of_torch():
    check_scheduled_steps(DATA / "scheduled_steps.json.gz")


@pytest.mark.torch
def test_the_installed_torch_writes_traces_that_read_the_same(tmp_path):
    pytest.importorskip("torch")
    subprocess.run([sys.executable, str(DATA / "record.py"), str(tmp_path)], check=True, timeout=300)
    _, _, profile = check_marked_step(tmp_path / "marked_step.json.gz")
    check_sources(profile)
    check_scheduled_steps(tmp_path / "scheduled_steps.json.gz")
