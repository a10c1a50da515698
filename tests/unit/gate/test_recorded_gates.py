from __future__ import annotations

import math

import numpy as np
import pytest

from perfguard.gate.calibration.aa_gates import (
    aa_gate,
    case_samples,
    full_block_s,
    gates_of_scope,
    gates_of_suite,
    startup_s,
    with_gates,
)
from perfguard.gate.rules.compare import compare_paired
from perfguard.records.calibration import Scope
from perfguard.records.facts import fact
from perfguard.records.run import Arm, BlockConditions, CaseFailed, CaseSamples, PairedData
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import GateOutcome, Policy
from perfguard.stats.paired import block_effect
from tests.calibrated_machines import gate_of
from tests.changed_values import replace
from tests.compared_cases import judge

FOUR_BLOCKS = Policy(min_blocks=2)
"""A rule that decides on the few blocks of these runs."""
SCOPE = Scope(machine_id="m", stack_id=None, cpus=1, env_profile="stable", rule=2, alpha=0.008, margin_ratio=0.005)


def block(number, *, duration_s=4.0, steal=0.0):
    return BlockConditions(
        block=number, duration_s=duration_s, steal_ratio=steal, involuntary_switches=0, control_s=(1e-3,)
    )


def samples(case_id, number, ratio=1.0):
    baseline = (0.0010, 0.0011, 0.0012, 0.0010, 0.0011)
    candidate = tuple(value * ratio * (1 + 0.001 * n) for n, value in enumerate(baseline))
    return CaseSamples(case_id=case_id, block=number, baseline_s=baseline, candidate_s=candidate)


class TestTheSamplesOfARun:
    data = PairedData(
        case_ids=("a", "b", "c"),
        samples=(
            *(samples("a", n, 1.0 + 0.01 * n) for n in (2, 0, 1, 3)),
            *(samples("b", n) for n in range(4)),
            samples("c", 0),
        ),
        conditions=(*(block(n) for n in range(3)), block(3, steal=0.5)),
        failures=(CaseFailed(case_id="b", arm=Arm.CANDIDATE, reason=fact("case.raised", error="broken")),),
    )

    def test_hold_the_block_values_in_the_order_they_ran_without_voided_blocks(self):
        found = case_samples(self.data, {"a"}, FOUR_BLOCKS)["a"]
        expected = [
            block_effect(s.baseline_s, s.candidate_s).log_ratio
            for s in (samples("a", n, 1 + 0.01 * n) for n in range(3))
        ]
        assert found.block_log_ratios == pytest.approx(expected, abs=5e-7)
        assert all(round(value, 6) == value for value in found.block_log_ratios)

    def test_leave_out_what_failed_and_know_what_gates(self):
        found = case_samples(self.data, {"a"}, FOUR_BLOCKS)
        assert {case_id: sample.gating for case_id, sample in found.items()} == {"a": True, "c": False}

    def test_keep_how_much_single_samples_vary(self):
        found = case_samples(self.data, {"a"}, FOUR_BLOCKS)["a"]
        assert found.samples == 5
        steps = np.log(1 + 0.001 * np.arange(5))
        winsorised = np.clip(steps, steps[1], steps[3])
        assert found.sample_variance == pytest.approx(winsorised.var(ddof=1) * 5 * 4 / (3 * 2), rel=1e-3)

    def test_keep_what_weights_each_block(self):
        found = case_samples(self.data, {"a"}, FOUR_BLOCKS)["a"]
        entries = [samples("a", n, 1 + 0.01 * n) for n in range(3)]
        expected = [block_effect(entry.baseline_s, entry.candidate_s).variance for entry in entries]
        assert found.block_variances == pytest.approx(expected, rel=1e-3)

    def test_pair_as_many_samples_as_both_arms_have(self):
        entry = samples("a", 0)
        data = replace(self.data, samples=(replace(entry, candidate_s=entry.candidate_s[:3]),), failures=())
        assert case_samples(data, (), FOUR_BLOCKS)["a"].samples == 3

    def test_of_single_samples_have_no_variance(self):
        one = CaseSamples(case_id="a", block=0, baseline_s=(1e-3,), candidate_s=(2e-3,))
        data = PairedData(case_ids=("a",), samples=(one,), conditions=(block(0),))
        found = case_samples(data, (), FOUR_BLOCKS)["a"]
        assert (found.samples, found.sample_variance) == (1, None)
        assert found.block_log_ratios == (round(math.log(2), 6),)

    def test_the_pace_is_that_of_blocks_with_every_case(self):
        data = PairedData(
            case_ids=("a", "b"),
            samples=(samples("a", 0), samples("b", 0), samples("a", 1), samples("b", 1), samples("a", 2)),
            conditions=(block(0, duration_s=6.0), block(1, duration_s=5.0), block(2, duration_s=1.0)),
        )
        assert full_block_s(data) == 5.5
        assert full_block_s(PairedData(case_ids=(), samples=(), conditions=())) == 0.0
        lonely = (block(0, duration_s=6.0), block(1, duration_s=1.0))
        assert full_block_s(PairedData(case_ids=("a",), samples=(samples("a", 0),), conditions=lonely)) == 6.0
        assert full_block_s(PairedData(case_ids=("a",), samples=(), conditions=lonely)) == 3.5

    def test_the_start_of_a_block_is_told_only_where_every_case_tells_its_part(self):
        def data(*walls_s):
            entries = (replace(samples(name, 0), wall_s=wall_s) for name, wall_s in zip("ab", walls_s, strict=True))
            return PairedData(case_ids=("a", "b"), samples=tuple(entries), conditions=(block(0, duration_s=4.0),))

        assert startup_s(data(1.0, 2.5)) == 0.5
        assert startup_s(data(1.0, None)) is None
        assert startup_s(data(3.0, 2.5)) == 0.0  # clocks differ by a little
        assert startup_s(data(1.0004, 2.5)) == 0.5  # milliseconds are enough

    def test_tell_what_each_case_took_of_a_block_and_what_the_rest_of_it_took(self):
        data = PairedData(
            case_ids=("a", "b"),
            samples=(
                *(replace(samples("a", n), wall_s=1.0 + 0.1 * n) for n in range(4)),
                *(replace(samples("b", n), wall_s=2.0) for n in range(2)),
            ),
            conditions=(*(block(n, duration_s=5.0) for n in range(3)), block(3, duration_s=5.0, steal=0.5)),
        )
        found = case_samples(data, (), FOUR_BLOCKS)
        assert [(found[name].blocks, found[name].wall_s) for name in "ab"] == [(4, 1.15), (2, 2.0)]
        assert len(found["a"].block_log_ratios) == 3  # the disturbed block took its time all the same
        assert startup_s(data) == pytest.approx((1.9 + 3.7) / 2 + 0.05)

    def test_of_older_recordings_do_not_tell_what_cases_took(self):
        found = case_samples(self.data, {"a"}, FOUR_BLOCKS)["a"]
        assert (found.blocks, found.wall_s, startup_s(self.data)) == (4, None, None)


class TestAGate:
    @staticmethod
    def judged(effect):
        cases = (Case(benchmark="a", target="m:f"), Case(benchmark="n", target="m:f", gating=Gating.ADVISORY))
        rng = np.random.default_rng(1)
        data = PairedData(
            case_ids=("a", "n"),
            samples=tuple(
                samples(case, n, 1 + effect + 0.001 * rng.standard_normal()) for case in ("a", "n") for n in range(8)
            ),
            conditions=tuple(block(n) for n in range(8)),
        )
        return judge(compare_paired(data, cases, Policy()), Policy()), data

    def kept(self, gate, data):
        return aa_gate(
            gate,
            data,
            run_id="r",
            finished_at="2026-01-01T00:00:00Z",
            duration_s=50.0,
            measured_s=32.0,
            placebo=True,
            banked=False,
        )

    def test_keeps_what_the_times_said_and_how_long_it_took(self):
        found = self.kept(*self.judged(0.0))
        assert (found.outcome, found.flagged, found.is_counted, found.is_false_alarm) == ("pass", (), True, False)
        assert (found.blocks, found.block_s, found.overhead_s) == (8, 4.0, 18.0)
        assert {case_id: sample.gating for case_id, sample in found.cases.items()} == {"a": True, "n": False}

    @pytest.mark.parametrize(
        ("duration_s", "measured_s", "kept"), [(50.06, 32.0, (50.1, 18.1)), (31.5, 32.0, (31.5, 0.0))]
    )
    def test_keeps_tenths_of_seconds_and_none_below_zero(self, duration_s, measured_s, kept):
        gate, data = self.judged(0.0)
        times = {"duration_s": duration_s, "measured_s": measured_s}
        found = aa_gate(gate, data, run_id="r", finished_at="2026", placebo=True, banked=False, **times)
        assert (found.duration_s, found.overhead_s) == kept

    def test_names_the_gating_cases_that_were_flagged(self):
        found = self.kept(*self.judged(0.1))
        assert (found.outcome, found.flagged, found.is_false_alarm) == ("regressed", ("a",), True)

    def test_that_passed_by_construction_counts_by_its_times(self):
        gate, data = self.judged(0.1)
        by_hash = replace(gate, outcome=GateOutcome.PASS, identical=True, measured_outcome=gate.outcome)
        assert self.kept(by_hash, data).is_false_alarm


class TestPuttingGatesTogether:
    def put(self, calibration, gates, scope=SCOPE):
        return with_gates(calibration, gates, scope=scope, suite="pr")

    def test_orders_them_by_time_and_counts_a_run_once(self):
        late, early = gate_of("b", finished_at="2026-02-01T00:00:00Z"), gate_of("a")
        found = self.put(self.put(None, [late]), [early, replace(late, outcome="regressed")])
        assert [gate.run_id for gate in found.gates] == ["a", "b"]
        assert found.gates[1].outcome == "pass"

    def test_of_another_scope_starts_afresh(self):
        before = self.put(None, [gate_of("a")])
        found = self.put(before, [gate_of("b")], scope=replace(SCOPE, cpus=2))
        assert [gate.run_id for gate in found.gates] == ["b"]
        assert found.scope.cpus == 2

    def test_counts_only_those_of_the_cases_that_a_suite_has_now(self):
        old, new = gate_of("a", cases={"x": None, "gone": None}), gate_of("b", cases={"x": None, "added": None})
        assert gates_of_suite([old, new], ["x", "added", "skipped"]) == (new,)
        assert gates_of_suite([old], ["x"]) == ()
        assert gates_of_suite([new], ["x", "added", "skipped"]) == (new,)
        assert gates_of_suite([], ["x"]) == ()

    def test_takes_banked_gates_of_the_same_scope_only(self):
        banked = self.put(None, [gate_of("a")])
        assert [gate.banked for gate in gates_of_scope(banked, SCOPE)] == [True]
        assert gates_of_scope(banked, replace(SCOPE, machine_id="other")) == ()
        assert gates_of_scope(None, SCOPE) == ()
