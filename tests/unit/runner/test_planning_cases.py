from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.model.events import CaseCalibrated, CaseFailed
from perfguard.model.plan import Injection, MeasureSettings
from perfguard.model.run import Arm
from perfguard.model.spec import Case
from perfguard.runner.calibrate import ArmReport, plan_cases

CASES = tuple(Case(benchmark=name, target=f"bench:{name}") for name in ("x", "y"))


def failed(name, arm):
    return CaseFailed(case_id=name, arm=arm, missing=False, reason="broken", detail="")


def plan(baseline, candidate, *, slice_s=0.05, injections=()):
    events = []
    plans = plan_cases(
        CASES,
        (baseline, candidate),
        settings=MeasureSettings(slice_s=slice_s),
        injections=injections,
        emit=events.append,
    )
    return plans, events


def test_loops_fill_a_slice_by_the_baselines_time_and_are_the_same_for_both_arms():
    plans, events = plan(ArmReport(iteration_s={"x": 0.004, "y": 3.0}), ArmReport(iteration_s={"x": 0.4, "y": 0.1}))
    assert [(p.case.id, p.inner_loops, p.iteration_s) for p in plans] == [("x", 13, 0.004), ("y", 1, 3.0)]
    assert events == [
        CaseCalibrated(case_id="x", inner_loops=13, iteration_s=0.004),
        CaseCalibrated(case_id="y", inner_loops=1, iteration_s=3.0),
    ]


@pytest.mark.parametrize("arm", list(Arm))
def test_a_case_that_one_arm_cannot_run_is_left_out_and_reported_once(arm):
    good, bad = ArmReport(iteration_s={"x": 0.1, "y": 0.1}), ArmReport(iteration_s={"y": 0.1})
    bad.failed["x"] = failed("x", arm)
    pair = (bad, good) if arm is Arm.BASELINE else (good, bad)
    plans, events = plan(*pair)
    assert [p.case.id for p in plans] == ["y"]
    assert events[0] == failed("x", arm)


def test_a_case_that_was_never_reached_is_neither_planned_nor_failed():
    plans, events = plan(ArmReport(iteration_s={"x": 0.1}), ArmReport(iteration_s={"x": 0.1}))
    assert ([p.case.id for p in plans], len(events)) == (["x"], 1)


@given(st.floats(-0.89, 9.0), st.floats(1e-6, 1.0))
def test_an_injection_makes_the_wanted_ratio(effect, iteration_s):
    report = ArmReport(iteration_s={"x": iteration_s})
    (planned,), _ = plan(report, report, injections=[("x", Injection(pattern="x", effect_ratio=effect))])
    baseline, candidate = (iteration_s + spin for spin in planned.spin_s)
    assert candidate / baseline == pytest.approx(1 + effect)
    assert min(planned.spin_s) == 0.0


def test_without_an_injection_nothing_spins():
    report = ArmReport(iteration_s={"x": 0.1, "y": 0.1})
    plans, _ = plan(report, report, injections=[("x", Injection(pattern="x", effect_ratio=0.5))])
    assert plans[1].spin_s == (0.0, 0.0)
