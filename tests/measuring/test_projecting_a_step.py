"""`perfguard profile --project` of a real step: its ops are replayed alone by another worker on the same CPU."""

from __future__ import annotations

import json
import math

import pytest
from jsonschema import Draft202012Validator

from perfguard.codec import from_builtins
from perfguard.recordings import schema_of
from perfguard.records.steps.projection import CaseProjection

pytestmark = pytest.mark.torch

BENCHMARK = """\
import perfguard
from perfguard.benchmarks import steps


@perfguard.benchmark(name="small_bert", phase="step")
def small_bert():
    return steps.bert(layers=1, hidden=64, sequence=32, batch=4, dtype="fp32", mode="eager")
"""


def test_most_of_a_step_is_replayed_and_its_seconds_add_up(project):
    pytest.importorskip("torch")
    project.write("bench_bert.py", BENCHMARK)
    size = ("--processes", "1", "--steps", "4")
    done = project.run("profile", "small_bert", "--project", *size, "--format", "json", "--no-progress")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    Draft202012Validator(schema_of("profile")).validate(report)
    (case,) = report["cases"]
    assert "advice.unfused_optimizer" in {finding["code"] for finding in case["findings"]}
    projected = from_builtins(case["projection"], CaseProjection, source="the projection")
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
    products = [point for point in projected.roofline if point.flops]
    assert products
    assert all(point.alone_s > 0 and 0 < point.share_ratio < math.inf for point in products)
