"""A real step is profiled, and its ops replayed alone by another worker on the same CPU."""

from __future__ import annotations

import math

import pytest

from perfguard.profile.runs.projection import project_case
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm
from perfguard.runner.profiling.cases import Profiling, profile_cases
from perfguard.runner.profiling.replays import Replaying
from tests.real_workers import catalogue_case, starter_in

pytestmark = pytest.mark.torch

SETTINGS = MeasureSettings(setup_timeout_s=300, sample_timeout_s=120)
BERT = {"layers": 1, "hidden": 64, "sequence": 32, "batch": 4, "dtype": "fp32", "mode": "eager"}


@pytest.fixture
def starter(tmp_path):
    pytest.importorskip("torch")
    made = starter_in(tmp_path, SETTINGS)
    yield made
    made.close()


def test_most_of_a_step_is_replayed_and_its_seconds_add_up(starter, tmp_path):
    case = catalogue_case("step.bert", **BERT)
    profiling = Profiling(
        starter=starter,
        settings=SETTINGS,
        cpus=starter.cpus,
        folder=tmp_path / "profiles",
        arms=(Arm.CANDIDATE,),
        processes=1,
        steps=4,
        most_steps=0,
        where=False,
        should_stop=lambda: False,
        progress=lambda _: None,
    )
    found = profile_cases([case], profiling)
    assert not found.problems
    replaying = Replaying(
        starter=starter, settings=SETTINGS, cpus=starter.cpus, arm=Arm.CANDIDATE, budget_s=120, op_budget_s=0.01
    )
    processes = found.processes[case.id, Arm.CANDIDATE]
    projected = project_case(case.id, processes, replaying, benchdnn=None)
    ops = projected.ops
    assert ops.coverage_ratio >= 0.8
    assert ops.projected_s + ops.lost_s + ops.unreplayed_s + ops.outside_s == pytest.approx(ops.step_s)
    assert math.isfinite(ops.kernel_ratio)
    assert math.isfinite(ops.framework_ratio)
    assert ops.kernel_ratio > 0
    gaps = [problem.gap_s for problem in ops.problems if problem.gap_s is not None]
    assert gaps == sorted(gaps, reverse=True)
    assert all(problem.reason for problem in ops.problems if problem.projected_s is None)
    names = {problem.name for problem in ops.problems}
    assert {"aten::linear", "aten::scaled_dot_product_attention"} <= names
    assert "aten::addmm" not in names
    assert set(projected.ceilings.flops_per_s) == {"fp32"}
    linear = next(point for point in projected.roofline if point.name == "aten::linear")
    assert linear.flops
    assert linear.alone_s > 0
    assert 0 < linear.share_ratio < math.inf
