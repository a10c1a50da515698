from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from perfguard.gate.calibration.aa_gates import (
    block_variances,
    calibrated_margins,
    detectable_effects,
    false_alarms,
    pace_of,
    placebo_limit,
    summarize,
)
from perfguard.gate.calibration.error_rate import CalibrationStatus, calibration_state, error_rate
from perfguard.records.calibration import Calibration, CaseSample, GatePace
from perfguard.records.facts import fact
from perfguard.records.verdict import Margins
from perfguard.report.messages.catalog import describe
from perfguard.stats.calibration import pooled_spread
from perfguard.stats.power import sequential_mde
from tests.calibrated_machines import SCOPE, gate_of
from tests.changed_values import replace

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


def sample(values, *, gating=True):
    values = tuple(float(v) for v in values)
    return CaseSample(gating=gating, block_log_ratios=values, samples=12, sample_variance=1.2e-5)


def gate(number, cases, **fields):
    finished_at = f"2026-02-{1 + number % 28:02d}T00:00:00Z"
    return gate_of(f"run-{number:03d}", finished_at=finished_at, cases=cases, **fields)


def calibrated(gates, **changes):
    return Calibration(perfguard="0.1.0", suite="pr", scope=replace(SCOPE, **changes), gates=tuple(gates))


def margins_of(calibration, narrow=0.005):
    return calibrated_margins(calibration, narrow_ratio=narrow, wide_ratio=0.005)


def summarized(calibration, max_blocks=200):
    return summarize(calibration, max_blocks=max_blocks, margins=margins_of(calibration))


def quiet(count, sd=0.01, blocks=10, seed=3, **more):
    rng = np.random.default_rng(seed)
    return [gate(n, {"kernel.x": sample(sd * rng.standard_normal(blocks))}, **more) for n in range(count)]


class TestTheState:
    def test_holds_for_the_same_machine_software_and_rule(self):
        assert calibration_state(calibrated(quiet(2)), SCOPE, now=NOW).is_valid

    @pytest.mark.parametrize("nothing", [None, calibrated([])])
    def test_is_absent_without_a_gate(self, nothing):
        state = calibration_state(nothing, SCOPE, now=NOW)
        assert (state.status, state.reason) == (CalibrationStatus.ABSENT, fact("calibration.absent"))

    @pytest.mark.parametrize(
        ("changes", "what", "before", "after"),
        [
            (
                {"stack_id": "other", "software": {"torch": "2.14.0", "python": "3.11.7"}},
                *("torch", "2.13.0", "2.14.0"),
            ),
            ({"software": {"torch": "2.14.0", "python": "3.12.1"}}, "torch", "2.13.0", "2.14.0"),
            ({"software": {"python": "3.12.1"}, "stack_id": None}, "python", "3.11.7", "3.12.1"),
            ({"stack_id": "other"}, "software", "torch2.13.0-py3.11-0", "other"),
            ({"machine_id": "amd-y-2"}, "machine", "intel-x-1", "amd-y-2"),
            ({"cpus": 2}, "CPUs", 4, 2),
            ({"env_profile": "production"}, "env_profile", "stable", "production"),
            ({"rule": 3}, "decision rule", 2, 3),
            ({"alpha": 0.05}, "alpha", 0.008, 0.05),
            ({"margin_ratio": 0.001}, "margin", 0.005, 0.001),
        ],
    )
    def test_expires_with_what_it_was_measured_for(self, changes, what, before, after):
        state = calibration_state(calibrated(quiet(2)), replace(SCOPE, **changes), now=NOW)
        assert state.status is CalibrationStatus.EXPIRED
        values = dict(state.reason.values)
        assert (values.pop("what"), *values.values()) == (what, before, after)

    def test_an_unknown_stack_and_a_wider_margin_are_not_held_against_it(self):
        scope = replace(SCOPE, stack_id=None, software={}, margin_ratio=0.02)
        assert calibration_state(calibrated(quiet(2)), scope, now=NOW).is_valid

    def test_does_not_count_gates_that_are_yet_to_come(self):
        early = datetime(2026, 1, 1, tzinfo=timezone.utc)
        state = calibration_state(calibrated(quiet(2)), SCOPE, now=early)
        assert state.status is CalibrationStatus.EXPIRED
        assert state.reason.code == "calibration.from_the_future"

    def test_expires_with_age(self):
        late = datetime(2026, 2, 2, tzinfo=timezone.utc) + timedelta(days=91)
        state = calibration_state(calibrated(quiet(2)), SCOPE, now=late)
        assert state.reason == fact("calibration.old", days=91, limit=90)

    def test_holds_for_ninety_days_and_where_clocks_differ_by_a_day(self):
        found = calibrated(quiet(2))
        latest = datetime(2026, 2, 2, tzinfo=timezone.utc)
        for age, status in (
            (timedelta(days=90, hours=23), CalibrationStatus.VALID),
            (timedelta(days=-1), CalibrationStatus.VALID),
            (timedelta(days=-1, seconds=-1), CalibrationStatus.EXPIRED),
        ):
            assert calibration_state(found, SCOPE, now=latest + age).status is status


class TestTheErrorRate:
    def test_states_the_count_and_its_exact_bound(self):
        found = calibrated(quiet(35))
        state = calibration_state(found, SCOPE, now=NOW)
        reach = {"low_ratio": 0.011, "high_ratio": 0.034, "budget_s": 600}
        rate = error_rate(state, summarized(found), alpha=0.008, reach=reach)
        assert rate.code == "rate.calibrated"
        assert rate.values == {
            "false_alarms": 0,
            "gates": 35,
            "bound_ratio": pytest.approx(0.082, abs=0.001),
            "is_certified": False,
            "latest": "2026-02-28",
            "low_ratio": 0.011,
            "high_ratio": 0.034,
            "budget_s": 600,
            "screens": False,
        }

    def test_without_a_verdict_nothing_is_called_calibrated(self):
        found = calibrated([gate(number, {"kernel.x": sample([0.01] * 8, gating=False)}) for number in (1, 2, 3)])
        state = calibration_state(found, SCOPE, now=NOW)
        rate = error_rate(state, summarized(found), alpha=0.008)
        assert (rate.code, rate.values["gates"], rate.values["needed_blocks"]) == ("rate.not_yet", 3, 5)

    def test_is_certified_from_299_clean_gates_on(self):
        assert not false_alarms(calibrated(quiet(298, blocks=5))).is_certified
        certified = false_alarms(calibrated(quiet(299, blocks=5)))
        assert certified.is_certified
        red = replace(quiet(1)[0], outcome="regressed", flagged=("kernel.x",))
        assert not false_alarms(calibrated([*quiet(299, blocks=5), red])).is_certified

    def test_a_gate_that_was_too_short_to_flag_anything_is_no_trial(self):
        assert false_alarms(calibrated(quiet(3, blocks=4))).gates == 0

    def test_a_gate_on_a_disturbed_host_is_no_trial_and_teaches_no_noise(self):
        wild = gate(9, {"kernel.x": sample([0.9, -0.9, 0.8])}, outcome="host-unstable")
        found = calibrated([*quiet(3), wild])
        assert (false_alarms(found).gates, false_alarms(found).count) == (3, 0)
        assert summarized(found).cases[0].blocks == 30

    def test_says_why_it_expired_and_what_holds_until_then(self):
        found = calibrated(quiet(3), cpus=2)
        state = calibration_state(found, SCOPE, now=NOW)
        rate = error_rate(state, summarized(found), alpha=0.008)
        assert (rate.code, rate.values["reason"]) == ("rate.expired", "calibration.changed")
        assert [rate.values[name] for name in ("what", "before", "after", "alpha_ratio")] == ["CPUs", 2, 4, 0.008]
        assert (rate.values["false_alarms"], rate.values["gates"]) == (0, 3)
        assert "CPUs 2 → 4" in describe(rate)

    def test_says_that_nothing_was_measured(self):
        state = calibration_state(None, SCOPE, now=NOW)
        for summary in (None, summarized(calibrated([]))):
            rate = error_rate(state, summary, alpha=0.008)
            assert (rate.code, rate.values) == ("rate.not_calibrated", {"alpha_ratio": 0.008})

    def test_a_gate_in_which_nothing_could_gate_is_no_trial(self):
        advisory = [gate(1, {"kernel.x": sample([0.01] * 8, gating=False)})]
        assert false_alarms(calibrated(advisory)).gates == 0

    def test_calls_effects_beyond_measure_so(self):
        found = calibrated(quiet(3))
        state = calibration_state(found, SCOPE, now=NOW)
        reach = {"low_ratio": 0.4, "high_ratio": 3e6, "budget_s": 600}
        rate = error_rate(state, summarized(found), alpha=0.008, reach=reach)
        assert "40.0 % to over 100 %" in describe(rate)


class TestTheCases:
    @staticmethod
    def effects(summary, budget_s=600.0, max_blocks=200):
        return detectable_effects(summary, alpha=0.008, budget_s=budget_s, max_blocks=max_blocks)

    def test_find_less_in_fewer_blocks(self):
        summary = summarized(calibrated(quiet(4)))
        assert self.effects(summary, budget_s=300.0) > self.effects(summary)
        assert self.effects(summary, max_blocks=20) > self.effects(summary)
        assert self.effects(summary, budget_s=20.0) is None

    def test_are_worked_out_from_the_raw_values(self):
        found = calibrated(quiet(4))
        case = summarized(found).cases[0]
        spread = pooled_spread([g.cases["kernel.x"].block_log_ratios for g in found.gates])
        assert (case.block_sd, case.block_sd_interval) == (spread.sd, spread.interval)
        assert (case.gates, case.blocks, case.margin_ratio) == (4, 40, 0.005)
        between = spread.sd**2 - 1.2e-5 / 12
        assert case.intraclass_correlation == pytest.approx(between / (between + 1.2e-5))
        blocks = math.floor((600 - 20) / 5)
        expected = sequential_mde(spread.sd, blocks, level=0.008, margin_ratio=0.005, analyses=8)
        assert dict(case.mde)[10] == pytest.approx(expected)
        assert self.effects(summarized(found)) == pytest.approx((expected, expected))

    def test_by_minutes_end_where_a_gate_does(self):
        of_minutes = dict(summarized(calibrated(quiet(4)), max_blocks=60).cases[0].mde)
        assert of_minutes[2] > of_minutes[10] == of_minutes[60]

    def test_gating_cases_come_first_and_share_the_level(self):
        rng = np.random.default_rng(1)
        cases = {
            name: sample(0.01 * rng.standard_normal(10), gating=name != "a.advisory")
            for name in ("a.advisory", "b", "c")
        }
        summary = summarized(calibrated([gate(1, cases)]))
        assert [case.case_id for case in summary.cases] == ["b", "c", "a.advisory"]
        blocks = math.floor((600 - 20) / 5)
        for case in summary.cases:
            expected = sequential_mde(case.block_sd, blocks, level=0.004, margin_ratio=0.005, analyses=8)
            assert [minutes for minutes, _ in case.mde] == [2, 5, 10, 20, 60]
            assert dict(case.mde)[10] == pytest.approx(expected)
        gating = [dict(case.mde)[10] for case in summary.cases[:2]]
        assert self.effects(summary) == pytest.approx((min(gating), max(gating)))
        assert min(gating) < max(gating)

    def test_gate_where_the_latest_gate_lets_them(self):
        values = {"kernel.x": [0.01, -0.01, 0.02], "kernel.y": [0.01, 0.0, -0.01]}
        earlier = gate(1, {name: sample(found) for name, found in values.items()})
        latest = gate(2, {name: sample(found, gating=name == "kernel.y") for name, found in values.items()})
        summary = summarized(calibrated([earlier, latest]))
        assert {case.case_id: case.gating for case in summary.cases} == {"kernel.x": False, "kernel.y": True}

    def test_tell_since_when_and_until_when_gates_ran(self):
        summary = summarized(calibrated(quiet(3)))
        assert (summary.first_at, summary.latest_at) == ("2026-02-01T00:00:00Z", "2026-02-03T00:00:00Z")

    def test_weights_of_blocks_are_known_where_each_has_one(self):
        values = sample([0.1, 0.2])
        assert block_variances(values) is None
        assert block_variances(replace(values, block_variances=(1e-5,))) is None
        first, second = block_variances(replace(values, block_variances=(1e-5, None)))
        assert first == 1e-5
        assert math.isnan(second)

    def test_only_placebo_gates_make_a_floor(self):
        jumps = [0.04, -0.05, 0.03, -0.04, 0.05]
        wave = 0.002 * np.array([1, -1] * 5)
        gates = [gate(n, {"kernel.x": sample(jump + wave)}) for n, jump in enumerate(jumps)]
        margins = margins_of(calibrated(gates))
        assert margins.cases["kernel.x"] > 0.08
        assert summarized(calibrated(gates)).cases[0].margin_ratio == margins.cases["kernel.x"]
        unrelocated = [replace(each, placebo=False) for each in gates]
        assert margins_of(calibrated(unrelocated)) == Margins(ratio=0.005)

    def test_the_margin_is_narrow_where_relocated_arms_hardly_differ(self):
        def margin(gates, narrow=0.0025):
            return margins_of(calibrated(gates), narrow)

        alike = quiet(12, sd=0.004, blocks=20)
        assert margin(alike) == Margins(ratio=0.0025)
        assert margin([replace(each, placebo=False) for each in alike]) == Margins(ratio=0.005)  # nothing is shown
        assert margin(quiet(12, sd=0.03, blocks=5)) == Margins(ratio=0.005)  # too noisy to show it
        assert 0.002 < placebo_limit(calibrated(quiet(12, blocks=10))) < 0.003
        assert margin(quiet(12, blocks=10)) == Margins(ratio=0.005)
        assert margin(alike, narrow=0.005) == Margins(ratio=0.005)  # configured

    def test_a_case_whose_own_relocated_arms_differ_keeps_the_wide_margin(self):
        rng = np.random.default_rng(5)

        def values(shift):
            return sample(shift + 0.003 * rng.standard_normal(20))

        gates = [
            gate(n, {**{f"kernel.{k}": values(0.0) for k in range(9)}, "kernel.x": values(0.0025 * (-1) ** n)})
            for n in range(12)
        ]
        found = margins_of(calibrated(gates), 0.0025)
        assert found.ratio == 0.0025
        assert found.cases.keys() == {"kernel.x"}
        assert found.cases["kernel.x"] >= 0.005

    def test_of_no_gate_are_none(self):
        summary = summarized(calibrated([]))
        assert (summary.cases, summary.latest_at, summary.false_alarms.bound) == ((), None, 1.0)
        assert self.effects(summary) is None


class TestThePace:
    def test_turns_minutes_into_blocks_and_back(self):
        pace = GatePace(block_s=5.0, overhead_s=20.0)
        assert pace.blocks_within(600) == 116
        assert pace.minutes_for(116) == pytest.approx(10)
        assert pace.blocks_within(10) == 0

    def test_is_unknown_without_a_gate(self):
        assert pace_of(()).blocks_within(600) == 0


class TestThePaceOfGatesWhoseCasesLeave:
    """Six seconds to start the workers; a heavy case of ten seconds and a light one of two."""

    @staticmethod
    def gate(number, blocks, heavy, light, *, is_told=True):
        told = {"heavy": 10.0, "light": 2.0} if is_told else {}
        cases = {
            name: replace(sample(np.zeros(count)), blocks=count, wall_s=told.get(name))
            for name, count in (("heavy", heavy), ("light", light))
        }
        known = {"blocks": blocks, "block_s": 18.0, "overhead_s": 20.0, "startup_s": 6.0 if is_told else None}
        return gate(number, cases, **known)

    def test_shrinks_blocks_to_what_is_left(self):
        pace = pace_of([self.gate(n, 30, 5, 30) for n in range(3)])
        # Five blocks of 18 s; then the heavy case has its answer, and blocks of 8 s hold the light one.
        within_s = 20 + 5 * 18 + 10 * 8
        assert [pace.blocks_within(within_s - 0.1, "light"), pace.blocks_within(within_s, "light")] == [14, 15]
        assert pace.minutes_for(15, "light") == pytest.approx(within_s / 60)
        assert pace.minutes_for(3, "light") == pytest.approx((20 + 3 * 18) / 60)

    def test_keeps_the_case_in_question_to_the_end(self):
        pace = pace_of([self.gate(n, 30, 5, 30) for n in range(3)])
        assert pace.blocks_within(20 + 10 * 18, "heavy") == 10  # the light one was never seen to leave

    def test_weighs_cases_by_how_often_they_were_still_there(self):
        pace = pace_of([self.gate(0, 30, 5, 30), self.gate(1, 30, 10, 30)])
        # In blocks 6 to 10 the heavy case is there in half of the gates.
        assert pace.minutes_for(10, "light") == pytest.approx((20 + 5 * 18 + 5 * 13) / 60)
        assert pace.minutes_for(11, "light") == pytest.approx((20 + 5 * 18 + 5 * 13 + 8) / 60)

    def test_learns_from_older_gates_when_cases_leave_and_from_newer_ones_what_they_take(self):
        pace = pace_of([self.gate(0, 30, 10, 30, is_told=False), self.gate(1, 30, 5, 30)])
        assert pace.minutes_for(10, "light") == pytest.approx((20 + 5 * 18 + 5 * 13) / 60)

    def test_takes_every_case_to_the_end_where_no_gate_tells_what_it_takes(self):
        pace = pace_of([self.gate(0, 30, 5, 30, is_told=False)])
        assert not pace.knows_cases
        assert pace.blocks_within(20 + 10 * 18, "light") == 10

    def test_is_known_of_cases_only_where_each_tells_what_it_takes(self):
        told, untold = self.gate(0, 30, 5, 30), self.gate(0, 30, 5, 30, is_told=False)
        half = replace(told, cases={**told.cases, "light": untold.cases["light"]})
        for gate in (half, replace(told, startup_s=None)):
            pace = pace_of([gate])
            assert not pace.knows_cases
            assert (pace.block_s, pace.cases) == (18.0, {})

    def test_a_case_that_was_measured_in_the_last_block_was_not_seen_to_leave(self):
        pace = pace_of([self.gate(0, 5, 5, 5)])
        assert pace.cases["heavy"].stays == (1.0,) * 6

    def test_counts_the_blocks_that_measured_a_case_voided_ones_too(self):
        gate = self.gate(0, 30, 5, 30)
        heavy = replace(gate.cases["heavy"], block_log_ratios=(0.0,) * 3)
        for blocks, lasted in ((5, 5), (0, 3)):
            cases = {**gate.cases, "heavy": replace(heavy, blocks=blocks)}
            assert pace_of([replace(gate, cases=cases)]).cases["heavy"].stays == (*[1.0] * lasted, 0.0)

    def test_of_all_cases_together_is_that_of_full_blocks(self):
        pace = pace_of([self.gate(0, 30, 5, 30)])
        assert pace.blocks_within(20 + 10 * 18) == 10

    def test_lets_a_budget_find_smaller_effects(self):
        told, untold = (
            summarized(calibrated([self.noisy(n, is_told=told) for n in range(4)])) for told in (True, False)
        )
        assert dict(told.cases[1].mde)[10] < 0.9 * dict(untold.cases[1].mde)[10]

    def noisy(self, number, *, is_told):
        found = self.gate(number, 30, 5, 30, is_told=is_told)
        rng = np.random.default_rng(number)
        cases = {
            name: replace(each, block_log_ratios=tuple(0.01 * rng.standard_normal(len(each.block_log_ratios))))
            for name, each in found.cases.items()
        }
        return replace(found, cases=cases)
