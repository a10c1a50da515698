"""Real workers that profile: cases of the catalogue and a user's scripts, through the pipes, on real torch."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import textwrap
from collections import Counter, defaultdict

import pytest

from perfguard.profile.op_counts.steady import counts_of_steps, op_counts_of
from perfguard.profile.op_times.op_profile import profile_of
from perfguard.profile.trace.context import context_of
from perfguard.profile.trace.trace import read_trace
from perfguard.records.plan import MeasureSettings
from perfguard.records.protocol import MODULE_PREFIX, STEP_WINDOW, StepKind
from perfguard.runner.process.answers import HeldScript, ProfiledStep, RecordedOp, ScriptEnd
from perfguard.runner.process.arm_worker import CaseRefused, ProfilingWorker
from tests.real_workers import catalogue_case, greeted, starter_in

pytestmark = pytest.mark.torch

SETTINGS = MeasureSettings(setup_timeout_s=300, sample_timeout_s=120)
TIMEOUT_S = 120.0
SMALL = {
    "step.mobilenetv3": {"variant": "small", "image_size": 64, "batch": 2, "memory_format": "channels_last"},
    "step.bert": {"layers": 1, "hidden": 64, "sequence": 16, "batch": 2},
}


def case_of(name, *, mode="eager", dtype="fp32"):
    return catalogue_case(name, **SMALL[name], dtype=dtype, mode=mode)


@pytest.fixture
def start(tmp_path):
    """Starts a worker that profiles in a directory of the test."""
    pytest.importorskip("torch")
    starter = starter_in(tmp_path, SETTINGS)

    @contextlib.contextmanager
    def started():
        job = {"import_torch": True, "profile": True}
        with greeted(starter, ProfilingWorker, job, calibrate=True) as (worker, _):
            yield worker

    return started


def read(path):
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)


def window_of(trace):
    (window,) = [event for event in trace["traceEvents"] if event.get("name") == STEP_WINDOW and "dur" in event]
    return window


def inside(trace):
    """The events in the step's window that took time."""
    window = window_of(trace)
    end = window["ts"] + window["dur"]
    events = (event for event in trace["traceEvents"] if event.get("ph") == "X" and "dur" in event)
    return [event for event in events if window["ts"] <= event["ts"] < end]


def counted(trace):
    events = (event for event in inside(trace) if event["name"].startswith("aten::"))
    return Counter((event["name"], str(event["args"].get("Input Dims"))) for event in events)


def executed(log):
    lines = log.read_text(errors="replace").splitlines()
    return [line.split(",") for line in lines if line.startswith("onednn_verbose") and ",primitive,exec," in line]


def test_two_joined_steps_of_a_case_execute_the_same_and_tell_when(start, tmp_path):
    case = case_of("step.mobilenetv3")
    files = [{"trace": tmp_path / f"{name}.json.gz", "log": tmp_path / f"{name}.log"} for name in ("first", "second")]
    with start() as worker:
        worker.prepare(case, seed=1, check=False)
        bare = worker.profile(case, StepKind.BARE)
        steps = [worker.profile(case, StepKind.JOINED, **each) for each in files]
    traces = [read(each["trace"]) for each in files]
    assert bare.own_share is None
    assert counted(traces[0]) == counted(traces[1])
    assert counted(traces[0]).total() > 100
    modules = {event["name"] for event in inside(traces[0]) if event["name"].startswith(MODULE_PREFIX)}
    assert f"{MODULE_PREFIX}MobileNetV3" in modules
    assert len(modules) > 50
    if "onednn" in steps[0].logs:
        calls = [executed(each["log"]) for each in files]
        assert len(calls[0]) == len(calls[1]) > 10
        # Each call begins within the step's window, by the wall clock: what joins logs with traces.
        begin_ms = traces[0]["baseTimeNanoseconds"] / 1e6 + window_of(traces[0])["ts"] / 1e3
        lasts_ms = window_of(traces[0])["dur"] / 1e3
        assert all(-1 <= float(call[2]) - begin_ms <= lasts_ms + 1 for call in calls[0])
        assert not any("cache_miss" in line for line in files[1]["log"].read_text(errors="replace").splitlines())


def test_every_kind_of_step_follows_every_other(start, tmp_path):
    case = case_of("step.bert", dtype="bf16")
    with start() as worker:
        worker.prepare(case, seed=1, check=False)
        for number, kind in enumerate([*StepKind, *reversed(StepKind)]):
            trace = None if kind is StepKind.BARE else tmp_path / f"{number}.json.gz"
            log = tmp_path / f"{number}.log" if kind is StepKind.JOINED else None
            step = worker.profile(case, kind, trace=trace, log=log)
            assert step.kind is kind
            assert step.wall_s > 0
            assert step.compile_events == {}
            if trace is not None:
                assert window_of(read(trace))["dur"] * 1e-6 > 0.5 * step.wall_s


@pytest.mark.skipif(shutil.which("g++") is None, reason="mode=compile needs g++")
def test_a_compiled_step_is_profiled_and_compiles_nothing_more(start, tmp_path):
    case = case_of("step.bert", mode="compile")
    files = {"trace": tmp_path / "0.json.gz", "log": tmp_path / "0.log"}
    with start() as worker:
        prepared = worker.prepare(case, seed=1, check=False)
        worker.profile(case, StepKind.BARE)
        step = worker.profile(case, StepKind.JOINED, **files)
        again = worker.profile(case, StepKind.BARE)
    assert prepared.compile_events["unique_graphs"] >= 1
    assert step.compile_events == again.compile_events == {}
    assert counted(read(files["trace"])).total() > 0


def test_a_case_that_was_not_prepared_is_refused_and_the_worker_lives_on(start):
    case = case_of("step.bert")
    with start() as worker:
        with pytest.raises(CaseRefused):
            worker.profile(case, StepKind.BARE)
        worker.prepare(case, seed=1, check=False)
        assert worker.profile(case, StepKind.BARE).wall_s > 0


TRAINING = """
import atexit, sys
from pathlib import Path
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
try:
    for _ in range(int(sys.argv[1])):
        data = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        steps += 1
        if sys.argv[2:] == ["fail"] and steps == 6:
            raise ValueError("lost the data")
finally:
    Path("steps").write_text(str(steps))
print("done")
"""


@pytest.fixture
def script(tmp_path):
    def write(source):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(source))
        return path

    return write


def test_the_steps_of_a_script_are_profiled_one_by_one(start, script, tmp_path):
    kinds = [StepKind.BARE, StepKind.TRACE, StepKind.BARE, StepKind.TRACE, StepKind.JOINED, StepKind.WHERE]
    with start() as worker:
        held = worker.start_script(script(TRAINING), ["1000"], skip=3, timeout_s=TIMEOUT_S)
        assert isinstance(held, HeldScript)
        for number, kind in enumerate(kinds):
            files = {
                "trace": None if kind is StepKind.BARE else tmp_path / f"{number}.json.gz",
                "log": tmp_path / "log" if kind is StepKind.JOINED else None,
            }
            step = worker.script_step(kind, timeout_s=TIMEOUT_S, **files)
            assert isinstance(step, ProfiledStep)
            assert step.kind is kind
        ended = worker.stop_script(timeout_s=TIMEOUT_S)
    assert (ended.exit_code, ended.was_ended, ended.problem) == (0, True, None)
    assert int((tmp_path / "tree" / "steps").read_text()) < 20
    first, second = (read(tmp_path / f"{number}.json.gz") for number in (1, 3))
    assert counted(first) == counted(second)
    names = [event["name"] for event in sorted(inside(first), key=lambda event: event["ts"])]
    order = ("aten::randn", f"{MODULE_PREFIX}Sequential", "Optimizer.step#AdamW.step")
    assert [name for name in names if name in order] == list(order)


LAYERS = """
import torch

def scaled(value, by):
    value = value * by
    return value.tanh()

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        context.save_for_backward(value)
        return value.pow(3)

    @staticmethod
    def backward(context, gradient):
        (value,) = context.saved_tensors
        return gradient * value.square()
"""

LINES = """
import torch
from torch import nn
from layers import Cube, scaled

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 2)

    def forward(self, images):
        images = self.conv(images)
        images = scaled(
            images.relu(), 0.5
        )
        return self.head(Cube.apply(images).mean((2, 3)))

def batches():
    while True:
        yield torch.randn(2, 3, 8, 8), torch.zeros(2, 2)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in batches():
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.mse_loss(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def test_ops_of_a_script_know_the_line_that_ran_them(start, script, tmp_path):
    path = script(LINES)
    (tmp_path / "layers.py").write_text(LAYERS)
    kinds = (StepKind.TRACE, StepKind.WHERE, StepKind.TRACE, StepKind.WHERE)
    with start() as worker:
        worker.start_script(path, [], skip=2, timeout_s=TIMEOUT_S)
        for number, kind in enumerate(kinds):
            worker.script_step(kind, trace=tmp_path / f"{number}.json.gz", timeout_s=TIMEOUT_S)
        worker.stop_script(timeout_s=TIMEOUT_S)
    traces = [read_trace(tmp_path / f"{number}.json.gz") for number in range(len(kinds))]
    found = defaultdict(set)
    for key, line in profile_of(traces[1]).sources.items():
        found[key.phase.value, key.op].add(line)
    expected = {
        ("load", "aten::randn"): "train.py:21",
        ("forward", "aten::conv2d"): "train.py:13",
        ("forward", "aten::relu"): "train.py:15",
        ("forward", "aten::mul"): "layers.py:5",
        ("forward", "aten::tanh"): "layers.py:6",
        ("forward", "aten::pow"): "layers.py:12",
        ("forward", "aten::addmm"): "train.py:17",
        ("loss", "aten::mse_loss"): "train.py:27",
        ("loss", "aten::ones_like"): "train.py:28",
        ("backward", "aten::mse_loss_backward"): "train.py:27",
        ("backward", "aten::mm"): "train.py:17",
        ("backward", "CubeBackward"): "train.py:17",
        ("backward", "aten::square"): "layers.py:17",
        ("backward", "aten::tanh_backward"): "layers.py:6",
        ("backward", "aten::threshold_backward"): "train.py:15",
        ("backward", "aten::convolution_backward"): "train.py:13",
        ("optimizer", "aten::zero_"): "train.py:26",
        ("backward", "aten::linalg_vector_norm"): "train.py:29",
        ("optimizer", "aten::add_"): "train.py:30",
    }
    assert {place: found[place] for place in expected} == {place: {line} for place, line in expected.items()}
    # Marks apart, what is executed does not depend on whether there are any.
    places = {"case_id": "script", "isa_class": "any", "torch": "any"}
    op_counts = [op_counts_of(*counts_of_steps(trace, context_of(trace)), **places).rows for trace in traces]
    assert op_counts[0] == op_counts[1] == op_counts[2] == op_counts[3]


def test_a_script_that_fails_within_a_profiled_step_is_told_of(start, script, tmp_path):
    with start() as worker:
        worker.start_script(script(TRAINING), ["1000", "fail"], skip=5, timeout_s=TIMEOUT_S)
        worker.script_step(StepKind.BARE, timeout_s=TIMEOUT_S)
        ended = worker.script_step(StepKind.BARE, timeout_s=TIMEOUT_S)
        assert isinstance(ended, ScriptEnd)
        assert (ended.exit_code, ended.problem, ended.steps) == (1, "ValueError: lost the data", 6)
        assert "train.py" in ended.detail
        case = case_of("step.bert")
        worker.prepare(case, seed=1, check=False)
        assert worker.profile(case, StepKind.TRACE, trace=tmp_path / "after.json.gz").wall_s > 0


def test_a_script_without_steps_is_profiled_as_a_whole(start, script, tmp_path):
    path = script("import torch\nfor _ in range(3):\n    torch.ones(64, 64) @ torch.ones(64, 64)\n")
    with start() as worker:
        ended = worker.start_script(path, [], skip=1, timeout_s=TIMEOUT_S)
        assert ended is not None
        assert ended.steps == 0
    with start() as worker:
        whole = worker.whole_script(path, [], StepKind.TRACE, trace=tmp_path / "0.json.gz", timeout_s=TIMEOUT_S)
    assert whole.end.exit_code == 0
    assert sum(event["name"] == "aten::mm" for event in inside(read(tmp_path / "0.json.gz"))) == 3


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
def test_a_script_that_compiles_its_step_has_boundaries(start, script):
    path = script(
        """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend="eager")
        def train(data):
            optimizer.zero_grad()
            model(data).sum().backward()
            optimizer.step()

        for _ in range(100):
            train(torch.ones(2, 4))
        """
    )
    with start() as worker:
        assert isinstance(worker.start_script(path, [], skip=3, timeout_s=TIMEOUT_S), HeldScript)
        assert worker.script_step(StepKind.BARE, timeout_s=TIMEOUT_S).wall_s > 0
        assert worker.stop_script(timeout_s=TIMEOUT_S).was_ended


def test_an_op_is_replayed_alone_on_the_workers_cpus(start):
    size = 64
    product = RecordedOp(op="aten::mm", dims=[[size, size]] * 2, types=["float"] * 2, strides=[[size, 1]] * 2)
    with start() as worker:
        assert worker.replay(product, budget_s=0.01).call_s > 0
        refused = worker.replay(RecordedOp(op="aten::absent", dims=[[2]], types=["float"])).reason
        assert refused is not None
        assert refused.code == "replay.refused"
