"""Runs for tests of HTML pages: recorded ones as read from disk, a profile made by hand, and texts of an attacker."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from perfguard.codec import field_names, is_record
from perfguard.config import load_config
from perfguard.records.facts import Severity, Subject, fact, recorded_text
from perfguard.records.run import Arm
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpKey, OpTotal, StepPhase
from perfguard.records.steps.profile import Breakdown, PhaseShare, ProfiledCase, ProfileReport, Slice
from perfguard.records.steps.projection import CaseProjection, Projection, Roof, RooflineCeilings, RooflinePoint
from perfguard.report.html.content import RawFile, RunContent
from perfguard.report.pages.build import read_run
from tests.changed_values import replace
from tests.recorded_runs import DATA, SLOWER

EVIL = (
    '"\'><script>window.broken = 1</script></script><img src=x onerror="window.broken = 1">'
    '" onload="window.broken = 1" <svg/onload=window.broken=1> javascript:window.broken=1 '
    "<!-- --> ]]> {{ 7 * 7 }} {% raw %} `<b>` \x00\x1b[31m\r\n\u2028\u2029\u202e\ud800"
)
LONG = "very long " + "x" * 100_000


def a_project(path: Path, *names: str) -> Path:
    """A project with recorded runs."""
    runs = path / ".perfguard" / "runs"
    for name in names or ("paired", "rounds"):
        shutil.copytree(DATA / name, runs / name)
    return path


def recorded(path: Path, name: str = "paired") -> RunContent:
    """A recorded run, read from a project that has no other."""
    project = a_project(path, name)
    return read_run(load_config(project, {}, {}), project / ".perfguard" / "runs" / name)


def a_finding(**fields) -> Finding:
    known = {
        "code": "advice.unfused_optimizer",
        "severity": Severity.NOTABLE,
        "subject": Subject(op="Adam", place="train.py:88"),
        "values": {"optimizer": "Adam", "is_foreach": False},
        "seen": (fact("seen.calls", calls=320, ops=("`add_`",)),),
        "phases": (StepPhase.OPTIMIZER,),
        "places": 1,
        "share": 0.46,
        "command": "perfguard compare",
        "since_baseline": (recorded_text("Adam: fused → 320 small ops"),),
    }
    return Finding(**{**known, **fields})


def a_breakdown() -> Breakdown:
    """Fifteen kinds of work in a step of 12 ms."""
    parts = [3.0, 2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1]
    kinds = [("convolution", "FWD_D"), ("convolution", "BWD_W"), ("matmul", "forward"), ("reorder", "")]
    slices = tuple(
        Slice(
            name=kinds[index][0] if index < len(kinds) else f"kind {index}",
            direction=kinds[index][1] if index < len(kinds) else "backward",
            calls=4.0,
            time_s=part * 1e-3,
            share=part / sum(parts),
        )
        for index, part in enumerate(parts)
    )
    shares = {StepPhase.LOAD: 0.05, StepPhase.FORWARD: 0.3, StepPhase.LOSS: 0.0, StepPhase.BACKWARD: 0.5}
    shares[StepPhase.OPTIMIZER] = 0.15
    phases = tuple(
        PhaseShare(phase=phase, calls=9.0, time_s=12e-3 * share, share=share, primitives_s=1e-3, python_s=1e-3)
        for phase, share in shares.items()
    )
    return Breakdown(step_s=12e-3, slices=slices, phases=phases, unplaced_calls=0.0, unplaced_s=0.0)


def a_projection(case_id: str) -> CaseProjection:
    """Two problems whose operations are known, one in fp32 and one in bf16, and one that only moves memory."""
    point = RooflinePoint(
        name="aten::mm",
        detail="[64,64] [64,64] f32 f32",
        dtype="fp32",
        calls=12,
        flops=1e9,
        size_bytes=1e7,
        call_s=50e-3,
        alone_s=20e-3,
        roof=Roof.COMPUTE,
        best_s=10e-3,
    )
    step = Projection(
        step_s=10e-3,
        ops_s=7.5e-3,
        covered_s=6e-3,
        projected_s=3e-3,
        kernel_ratio=0.5,
        framework_ratio=0.45,
        problems=(),
    )
    return CaseProjection(
        case_id=case_id,
        arm=Arm.CANDIDATE,
        ops=step,
        primitives=step,
        ceilings=RooflineCeilings(
            flops_per_s={"fp32": 100e9, "bf16": 400e9}, bytes_per_s=10e9, threads=2, is_beyond_caches=True
        ),
        roofline=(
            point,
            replace(point, name="aten::addmm", dtype="bf16", call_s=5e-3),
            replace(point, name="aten::add", flops=None, roof=Roof.MEMORY),
        ),
        notes=(fact("projection.bandwidth_of_caches"),),
    )


def a_profile() -> RunContent:
    """A run of `perfguard profile --project`."""
    key = OpKey(
        phase=StepPhase.FORWARD, module="Net.conv1", op="aten::convolution", shapes="[8,3]", dtypes="f32", layouts=""
    )
    case = ProfiledCase(
        case_id=SLOWER,
        step_s=10e-3,
        profiled_step_s=12e-3,
        processes=4,
        steps=24,
        breakdown=a_breakdown(),
        ops=(OpTotal(key=key, calls=2.0, self_s=3e-3, source="train.py:12", implementations=("jit:avx2",)),),
        primitives=(),
        op_counts=None,
        projection=a_projection(SLOWER),
        findings=(a_finding(),),
        notes=(fact("profile.unplaced_calls", unplaced=2, calls=9),),
    )
    report = ProfileReport(
        folder="runs/profile",
        machine_id="example",
        machine="Example CPU",
        torch="2.8.0",
        cpus=(1, 2),
        cases=(case,),
        problems={"step.other": fact("profile.script_failed", error="it failed")},
        notes=(recorded_text("one note"),),
    )
    return RunContent(run_id="20260921T150000-profile", command=("profile", SLOWER), profile=report)


def poisoned(content: RunContent) -> RunContent:
    """The same run with an attacker's text in every field that holds text, and in its raw data."""
    evil: RunContent = _poison(content)
    return replace(
        evil, files=(RawFile(name=f"events{EVIL}.jsonl", size_bytes=9, content=EVIL.encode("utf-8", "replace")),)
    )


def _poison(value):
    if isinstance(value, Enum) or value is None:
        return value
    if isinstance(value, str):
        return value + (LONG if zlib.crc32(value.encode()) % 7 == 0 else "") + EVIL
    if is_record(type(value)):
        return replace(value, **{name: _poison(getattr(value, name)) for name in field_names(type(value))})
    if isinstance(value, Mapping):
        return {_poison(key): _poison(item) for key, item in value.items()}
    return tuple(_poison(item) for item in value) if isinstance(value, tuple) else value
