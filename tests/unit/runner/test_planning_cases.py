from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.records.events import CaseCalibrated
from perfguard.records.facts import fact
from perfguard.records.plan import LEAST_SAMPLES, CasePlan, Injection, MeasureSettings
from perfguard.records.run import Arm, CaseFailed
from perfguard.records.spec import Case
from perfguard.runner.blocks import calibrate
from perfguard.runner.blocks.calibrate import ArmReport, BlockCost, block_cost, budget_shortage, fit_samples, plan_cases
from perfguard.runner.blocks.measure import BLOCKS_OF_A_HASH_SEED
from perfguard.runner.process.worker_process import WorkerFailure
from tests.changed_values import replace

CASES = tuple(Case(benchmark=name, target=f"bench:{name}") for name in ("x", "y"))


def failed(name, arm):
    return CaseFailed(case_id=name, arm=arm, missing=False, reason=fact("case.raised", error="broken"), detail="")


def plan(baseline, candidate, *, sample_s=0.05, injections=()):
    events = []
    plans = plan_cases(
        CASES,
        (baseline, candidate),
        settings=MeasureSettings(sample_s=sample_s),
        injections=injections,
        emit=events.append,
    )
    return plans, events


def test_loops_fill_a_sample_between_the_arms_times_and_are_the_same_for_both():
    """x: the geometric mean of 4 and 16 ms is 8 ms, so 50 ms take seven."""
    plans, events = plan(ArmReport(iteration_s={"x": 0.004, "y": 3.0}), ArmReport(iteration_s={"x": 0.016, "y": 0.1}))
    assert [(p.case.id, p.inner_loops, p.iteration_s) for p in plans] == [("x", 7, 0.004), ("y", 1, 3.0)]
    assert events == [
        CaseCalibrated(case_id="x", inner_loops=7, iteration_s=0.004),
        CaseCalibrated(case_id="y", inner_loops=1, iteration_s=3.0),
    ]


def shares(*iteration_s):
    """Shares of two cases whose samples are one iteration."""
    report = ArmReport(iteration_s=dict(zip(("x", "y"), iteration_s, strict=True)))
    return [each.sample_share for each in plan(report, report, sample_s=0.001)[0]]


def test_cases_of_one_length_have_as_many_samples_as_the_settings_say():
    assert shares(0.1, 0.1) == pytest.approx([1.0, 1.0])


def test_a_short_case_has_more_samples_than_a_long_one_in_a_block_of_the_same_length():
    short, long = shares(0.1, 0.3)
    assert short / long == pytest.approx(3 ** (2 / 3))
    assert short + 3 * long == pytest.approx(1 + 3)


def test_no_case_has_more_than_two_and_a_half_times_the_samples_or_fewer_than_half():
    assert shares(0.01, 10.0) == [2.5, pytest.approx(0.91, abs=0.01)]
    assert CasePlan(case=CASES[0], inner_loops=1, iteration_s=1.0, sample_share=0.5).samples(MeasureSettings()) == 6


@pytest.mark.parametrize(("wanted", "samples"), [(12, 6), (4, LEAST_SAMPLES), (2, 2)])
def test_a_long_case_keeps_the_least_samples_or_what_was_asked_for(wanted, samples):
    long = CasePlan(case=CASES[0], inner_loops=1, iteration_s=1.0, sample_share=0.5)
    assert long.samples(MeasureSettings(samples=wanted)) == samples


@pytest.mark.parametrize("arm", list(Arm))
def test_a_case_that_one_arm_cannot_run_is_left_out_and_reported_once(arm):
    good, bad = ArmReport(iteration_s={"x": 0.1, "y": 0.1}), ArmReport(iteration_s={"y": 0.1})
    bad.failed["x"] = failed("x", arm)
    pair = (bad, good) if arm is Arm.BASELINE else (good, bad)
    plans, events = plan(*pair)
    assert [p.case.id for p in plans] == ["y"]
    assert events[0] == failed("x", arm)


def skipping(name, arm, *, skipped=True):
    report = ArmReport(iteration_s={"y": 0.1})
    report.failed[name] = replace(failed(name, arm), missing=True, skipped=skipped)
    return report


def test_only_what_every_arm_skips_is_skipped():
    _, events = plan(skipping("x", Arm.BASELINE), skipping("x", Arm.CANDIDATE))
    assert events[0].skipped
    for other in (ArmReport(iteration_s={"x": 0.1, "y": 0.1}), skipping("x", Arm.CANDIDATE, skipped=False)):
        _, events = plan(skipping("x", Arm.BASELINE), other)
        assert not events[0].skipped
        assert events[0].missing


def test_what_is_below_its_target_in_both_arms_is_said_of_the_candidate():
    reports = [skipping("x", arm, skipped=False) for arm in Arm]
    for report in reports:
        failure = report.failed["x"]
        report.failed["x"] = replace(failure, missing=False, reason=fact("case.below_target", error="0.1"))
    _, events = plan(*reports)
    assert (events[0].arm, events[0].is_below_target) == (Arm.CANDIDATE, True)


def arm_report(**iteration_s):
    return ArmReport(ready={"import_s": 1.0}, iteration_s=iteration_s, instance_s=dict.fromkeys(iteration_s, 0.01))


def test_samples_are_as_many_as_wanted_where_ten_blocks_fit():
    reports = (arm_report(x=0.01, y=0.01), arm_report(x=0.01, y=0.01))
    plans, _ = plan(*reports, sample_s=0.02)
    assert fit_samples(block_cost(plans, reports), MeasureSettings(samples=12), left_s=150.0) == 12


def test_samples_give_way_to_blocks_where_an_arm_is_far_slower():
    """One iteration of the candidate takes 0.5 s: twelve samples would leave room for three blocks in a minute."""
    reports = (arm_report(x=0.01, y=0.01), arm_report(x=0.5, y=0.5))
    plans, _ = plan(*reports, sample_s=0.02)
    settings = MeasureSettings(samples=12)
    few = fit_samples(block_cost(plans, reports), settings, left_s=60.0)
    more = fit_samples(block_cost(plans, reports), settings, left_s=150.0)
    assert 3 <= few < more < 12


def test_fewer_samples_than_were_asked_for_are_the_least():
    reports = (arm_report(x=5.0, y=5.0), arm_report(x=5.0, y=5.0))
    plans, _ = plan(*reports)
    assert fit_samples(block_cost(plans, reports), MeasureSettings(samples=2), left_s=10.0) == 2


def test_a_block_takes_its_processes_instances_and_samples():
    """Of two arms: a fork of 0.1 s, imports of 1 s for some blocks, two instances of 10 ms with three calls each."""
    reports = (arm_report(x=0.01), arm_report(x=0.03))
    plans = plan_cases(CASES[:1], reports, settings=MeasureSettings(samples=2), injections=(), emit=lambda event: None)
    assert plans[0].instances == 2
    cost = block_cost(plans, reports)
    loops = plans[0].inner_loops
    assert cost.sample_s == pytest.approx(loops * 0.04)
    assert cost.fixed_s == pytest.approx(0.2 + 2.0 / BLOCKS_OF_A_HASH_SEED + 2 * (0.01 + 0.03) + 2 * (0.01 + 0.09))
    assert cost.block_s(MeasureSettings(samples=2, warmups=1)) == pytest.approx(cost.fixed_s + 3 * loops * 0.04)


def test_a_budget_that_is_too_short_for_a_verdict_is_told_with_one_that_is_not():
    """3 s of processes and 4 samples of 1.25 s: a block takes 8 s, so two fit what is left, and five need 40 s."""
    cost = BlockCost(fixed_s=3.0, sample_s=1.25)
    said = budget_shortage(cost, MeasureSettings(samples=3, warmups=1), least=5, budget_s=30.0, left_s=20.0)
    assert said.code == "run.budget_short"
    assert said.values == {"blocks": 2, "needed": 5, "block_s": 8.0, "budget_s": 30.0, "enough_s": 60}
    settings = MeasureSettings(samples=3, warmups=1)
    assert budget_shortage(cost, settings, least=5, budget_s=55.0, left_s=45.0).values["blocks"] == 5
    assert budget_shortage(cost, settings, least=5, budget_s=60.0, left_s=50.0) is None


@given(instance_s=st.floats(0.0, 100.0), samples=st.integers(1, 50))
def test_a_case_has_between_one_and_twelve_instances_and_never_more_than_samples(instance_s, samples):
    report = ArmReport(iteration_s={"x": 0.01}, instance_s={"x": instance_s})
    plans = plan_cases(
        CASES[:1], (report, report), settings=MeasureSettings(samples=samples), injections=(), emit=lambda event: None
    )
    assert 1 <= plans[0].instances <= min(12, samples)


def test_a_case_that_is_expensive_to_set_up_has_one_instance():
    cheap, expensive = arm_report(x=0.01), ArmReport(iteration_s={"x": 0.01}, instance_s={"x": 3.0})
    plans, _ = plan(cheap, expensive)
    assert [p.instances for p in plans] == [1]


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


def test_a_candidate_that_is_slow_while_it_is_calibrated_cannot_make_the_baselines_samples_short():
    """Between 1.5 ms and 400 ms, 50 ms would take two iterations, 3 ms in the baseline: too short for any limit."""
    plans, _ = plan(ArmReport(iteration_s={"x": 0.0015, "y": 0.1}), ArmReport(iteration_s={"x": 0.4, "y": 0.1}))
    assert plans[0].inner_loops == 17


def test_a_calibration_that_does_not_end_is_broken_off():
    class Endless:
        is_waiting = True

        def open(self, *arguments, **options):
            pass

        def sample(self, **place):
            return SimpleNamespace(value_s=0.001)

    with pytest.raises(WorkerFailure, match="still calibrating x after 200 samples"):
        calibrate._iteration_s(Endless(), CASES[0], MeasureSettings())
