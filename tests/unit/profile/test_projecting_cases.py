"""From a profiled step's files to its projection, with a worker and a benchdnn with scripted answers."""

from __future__ import annotations

import os
import sys
import textwrap
from types import SimpleNamespace

import pytest

from perfguard.errors import MeasurementError
from perfguard.profile.runs.projection import observed_step, project_case, project_cases
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import MeasureSettings
from perfguard.records.protocol import StepKind
from perfguard.records.run import Arm
from perfguard.records.steps.projection import RooflineCeilings
from perfguard.runner.process.answers import ProfiledStep
from perfguard.runner.profiling.cases import Profiled, ProfiledProcess, StepFiles
from perfguard.runner.profiling.replays import OUT_OF_TIME, Benchdnn, Replaying
from tests.changed_values import replace
from tests.profile_traces import TraceBuilder
from tests.worker_replies import ready

CPU = max(os.sched_getaffinity(0))
ALONE_S = {"aten::mm": 60e-6, "aten::relu": 10e-6}
MATMUL = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 "
    "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,attr-scratchpad:user,,100x100:100x100,0.04\n"
)
SHUFFLE = MATMUL.replace(",matmul,", ",shuffle,").replace(",0.04", ",0.01")
CEILINGS = {
    "reply": "ceilings",
    "gemms": [
        {"dtype": "fp32", "size": 512, "call_s": 1.0, "flops_per_s": 100e9},
        {"dtype": "fp32", "size": 1024, "call_s": 1.0, "flops_per_s": 90e9},
    ],
    "streams": [
        {"kernel": "copy", "array_bytes": 1, "call_s": 1.0, "bytes_per_s": 8e9},
        {"kernel": "triad", "array_bytes": 1, "call_s": 1.0, "bytes_per_s": 10e9},
    ],
    "cache_bytes": 0,
    "is_beyond_caches": False,
    "threads": 1,
    "affinity": [CPU],
}


class Starter:
    """Its workers know how long ops take alone, and nothing of others."""

    def start(self, arm, block, settings):
        return self

    def start_control(self):
        raise NotImplementedError

    def send(self, do, **fields):
        self.command = {"do": do, **fields}

    def receive(self, timeout_s):
        if self.command["do"] == "hello":
            return ready([CPU])
        if self.command["do"] == "ceilings":
            assert self.command["dtypes"] == ["fp32"]
            return CEILINGS
        call_s = ALONE_S.get(self.command["op"]["op"])
        reason = None if call_s else "it has no overload of this name"
        return {"reply": "replayed", "call_s": call_s, "reason": reason, "affinity": [CPU]}

    def close(self):
        pass


def profiled(kind, wall_s, own_share=0.5):
    return ProfiledStep(
        kind=kind,
        wall_s=wall_s,
        thread_s=wall_s,
        process_s=wall_s,
        minor_faults=0,
        event_s=None if kind is StepKind.BARE else 2e-6,
        own_share=None if kind is StepKind.BARE else own_share,
        module_s=None if kind is StepKind.BARE else 3e-6,
        compile_events={},
        logs=(),
    )


def step(path, *, extra_us=0.0):
    """220 us in 8 events, 170 of them in ops: a product twice, a ReLU, and an op that is new."""
    trace = TraceBuilder()
    with trace.step(), trace.module("Net"):
        trace.wait(30 + extra_us)
        for _ in range(2):
            trace.leaf("aten::linear", 5)
        trace.leaf("aten::mm", 70, shapes=[[100, 100], [100, 100]])
        trace.leaf("aten::mm", 70, shapes=[[100, 100], [100, 100]])
        trace.leaf("aten::relu", 10, shapes=[[100, 100]])
        trace.leaf("aten::newest", 10, shapes=[[100]])
        trace.wait(20)
    return trace.write(path)


@pytest.fixture
def process(tmp_path):
    """One process with two steps of each kind, and one whose libraries were logged."""
    log = tmp_path / "joined.log"
    log.write_text("epoch 1\n" + 2 * MATMUL + SHUFFLE)
    traces = [step(tmp_path / f"{number}.json.gz") for number in range(2)]
    return ProfiledProcess(
        process=0,
        bare=[profiled(StepKind.BARE, wall_s) for wall_s in (204e-6, 204e-6)],
        traced=[StepFiles(step=profiled(StepKind.TRACE, 220e-6), trace=trace) for trace in traces],
        joined=StepFiles(step=profiled(StepKind.JOINED, 1.0), trace=traces[0], log=log),
    )


def projecting(*, benchdnn=None, **settings):
    known = {"budget_s": 100.0, **settings}
    replaying = Replaying(starter=Starter(), settings=MeasureSettings(), cpus=(CPU,), arm=Arm.CANDIDATE, **known)
    return replaying, benchdnn


def test_ops_are_projected_against_the_step_without_the_profiler(process):
    """Profiling adds 16 us to the step, 2 us for each of 8 events, half of it in the event."""
    found = project_case("x", [process], *projecting())
    ops = found.ops
    assert ops.step_s == pytest.approx(204e-6)
    assert ops.ops_s == pytest.approx(164e-6)
    assert ops.projected_s == pytest.approx(130e-6)
    assert ops.covered_s == pytest.approx(147e-6)
    assert [(row.name, row.calls) for row in ops.problems] == [
        ("aten::mm", 2),
        ("aten::relu", 1),
        ("aten::newest", 1),
        ("aten::linear", 2),
    ]
    assert ops.problems[2].reason == fact("replay.refused", error="it has no overload of this name")
    assert ops.problems[3].reason == fact("replay.no_arguments")
    assert (found.case_id, found.arm) == ("x", Arm.CANDIDATE)


def test_the_roofline_is_of_the_highest_ceilings(process):
    found = project_case("x", [process], *projecting())
    assert (found.ceilings.flops_per_s, found.ceilings.bytes_per_s) == ({"fp32": 100e9}, 10e9)
    product, relu = found.roofline
    assert (product.name, product.flops, product.size_bytes) == ("aten::mm", 2e6, 120e3)
    assert product.alone_s == 60e-6
    assert relu.flops is None
    assert fact("projection.bandwidth_of_caches") in found.notes


def test_ceilings_that_are_known_are_not_measured_again(process):
    known = RooflineCeilings(flops_per_s={"fp32": 300e9}, bytes_per_s=5e9, threads=1, is_beyond_caches=True)
    assert project_case("x", [process], *projecting(), known=known).ceilings == known
    found = project_case("x", [process], *projecting(), known=replace(known, flops_per_s={"bf16": 300e9})).ceilings
    assert (found.flops_per_s, found.bytes_per_s) == ({"fp32": 100e9, "bf16": 300e9}, 10e9)


def test_problems_that_have_no_time_left_are_told(process):
    seconds = iter([0.0, 0.0, *[1000.0] * 10])
    found = project_case("x", [process], *projecting(clock=lambda: next(seconds)))
    assert [row.reason for row in found.ops.problems].count(OUT_OF_TIME) == 2
    (late,) = (note for note in found.notes if note.code == "projection.out_of_time")
    assert late.values["problems"] == 2


def test_ops_that_take_longer_alone_are_told(process, monkeypatch):
    monkeypatch.setitem(ALONE_S, "aten::relu", 500e-6)
    found = project_case("x", [process], *projecting())
    (slower,) = (note for note in found.notes if note.code == "projection.slower_alone")
    assert slower.subject.op == "aten::relu"
    assert slower.values["alone_s"] == pytest.approx(500e-6)
    assert slower.values["others"] is None


def test_without_benchdnn_the_projection_says_that_it_is_not_there(process):
    found = project_case("x", [process], *projecting())
    assert found.primitives is None
    assert found.notes[-1] == fact("projection.no_benchdnn")


@pytest.fixture
def benchdnn(tmp_path):
    """A stand-in that takes 30 us for every product."""
    path = tmp_path / "benchdnn"
    source = """
        import sys
        assert sys.argv[1:3] == ["--matmul", "--mode=P"], sys.argv
        print("Output template: perf,%engine%,%impl%,%0time%")
        print("perf,cpu,ref:any,0.03")
    """
    path.write_text(f"#!{sys.executable} -I\n{textwrap.dedent(source)}")
    path.chmod(0o755)
    return Benchdnn(path=str(path), environment={}, cpus=(CPU,))


def test_primitives_are_projected_by_benchdnn(process, benchdnn):
    found = project_case("x", [process], *projecting(benchdnn=benchdnn))
    assert found.notes[-1] == fact("projection.bandwidth_of_caches")
    product, shuffle = found.primitives.problems
    assert (product.name, product.calls) == ("matmul", 2)
    assert (product.observed_s, product.projected_s) == (pytest.approx(80e-6), pytest.approx(60e-6))
    assert product.assumed == ("implementation_in_step=brg_matmul:avx512_core",)
    assert shuffle.reason.code == "replay.refused"
    assert "it is a shuffle" in shuffle.reason.values["error"]
    assert found.primitives.step_s == found.ops.step_s
    assert found.primitives.kernel_ratio == pytest.approx(0.75)


def test_primitives_have_a_budget_too(process, benchdnn):
    found = project_case("x", [process], *projecting(benchdnn=benchdnn, budget_s=0.0))
    assert all(row.reason == OUT_OF_TIME for row in found.primitives.problems)


def test_a_step_that_was_only_profiled_is_as_long_as_the_profiled_one(process):
    process.bare.clear()
    adjusted, step_s = observed_step([process])
    assert step_s == pytest.approx(220e-6)
    assert adjusted.ops_s == pytest.approx(170e-6)


def test_a_case_without_a_traced_step_cannot_be_projected():
    with pytest.raises(MeasurementError, match="no step was profiled"):
        observed_step([ProfiledProcess(process=0)])


def test_cases_that_cannot_be_projected_are_noted_and_the_others_are_projected(process, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    lost = ProfiledProcess(process=0, traced=[StepFiles(step=profiled(StepKind.TRACE, 1.0), trace=broken)])
    found = Profiled()
    found.processes["bad", Arm.CANDIDATE] = [lost]
    found.processes["good", Arm.CANDIDATE] = [process]
    found.processes["good", Arm.BASELINE] = [process]
    starter = Starter()
    starter.environments = {Arm.CANDIDATE: {"PATH": "/nowhere"}}
    noted = []
    session = SimpleNamespace(
        settings=MeasureSettings(),
        selection=SimpleNamespace(cpus=(CPU,), housekeeping=()),
        interrupts=SimpleNamespace(asked=False),
        request=SimpleNamespace(progress=lambda _: None),
        note=noted.append,
    )
    projections = project_cases(session, starter, found)
    assert [projection.case_id for projection in projections.values()] == ["good"] == list(projections)
    (note,) = noted
    assert (note.code, note.subject.case_id, note.severity) == ("profile.not_projected", "bad", Severity.NOTABLE)
