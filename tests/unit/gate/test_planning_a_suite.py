from __future__ import annotations

import math

import pytest

from perfguard.gate.calibration.machine_rates import planned_gating
from perfguard.gate.plan import EffectTarget, KnownNoise, plan_cases, suite_minutes
from perfguard.records.calibration import CasePace, GatePace
from perfguard.records.facts import Severity, fact
from perfguard.records.spec import Case, Gating
from perfguard.stats.power import sequential_blocks
from tests.calibrated_machines import plan_of
from tests.changed_values import replace

PACE = GatePace(block_s=5.0, overhead_s=20.0)
TARGET = EffectTarget(detect_ratio=0.02, power=0.95, alpha=0.008, budget_s=600.0, max_blocks=60, min_blocks=5)


def noise(sd, margin=0.005):
    return KnownNoise(block_sd=sd, margin_ratio=margin)


def planned(noises, **changes):
    return plan_cases(tuple(noises), noises, PACE, replace(TARGET, **changes))


def test_blocks_are_those_of_the_level_that_the_family_leaves():
    found = planned({"a": noise(0.01), "b": noise(0.004)})
    expected = sequential_blocks(0.02, 0.01, level=0.004, margin_ratio=0.005, power=0.95)
    assert [case.gating for case in found] == [True, True]
    assert found[0].blocks == expected
    assert found[0].minutes == pytest.approx(PACE.minutes_for(expected), abs=0.05)
    assert suite_minutes(found) == found[0].minutes


def test_a_case_that_the_budget_does_not_reach_is_demoted_with_the_reason():
    quiet, loud = planned({"quiet": noise(0.004), "loud": noise(0.0232)})
    assert (quiet.gating, loud.gating) == (True, False)
    needs = {"detect_ratio": 0.02, "power_share": 0.95}
    wanted = fact("plan.beyond_max_blocks", needs, blocks=loud.blocks, max_blocks=60)
    assert loud.reason == wanted
    short, long = (planned({"loud": noise(0.02)}, budget_s=budget_s)[0] for budget_s in (120.0, 600.0))
    assert (short.gating, long.gating) == (False, True)
    assert (short.reason.code, short.reason.values["within"]) == ("plan.beyond_budget", 20)
    assert long.reason.code == "plan.enough"


def test_a_demoted_case_is_planned_as_the_next_member_of_the_family():
    found = planned({"a": noise(0.004), "b": noise(0.005), "loud": noise(0.0232)})
    assert [case.gating for case in found] == [True, True, False]
    assert found[2].blocks == sequential_blocks(0.02, 0.0232, level=0.008 / 3, margin_ratio=0.005, power=0.95)
    assert [case.minutes for case in found] == [round(PACE.minutes_for(case.blocks), 1) for case in found]
    assert any(case.minutes != round(PACE.minutes_for(case.blocks), 2) for case in found)
    # Only those that gate are waited for.
    assert suite_minutes(found) == max(case.minutes for case in found[:2]) < found[2].minutes


def test_of_a_case_that_was_never_measured_nothing_is_planned():
    (case,) = plan_cases(("a",), {}, PACE, TARGET)
    assert (case.blocks, case.minutes, case.block_sd, case.margin_ratio) == (None, None, None, 0.0)


def test_demoting_the_neediest_may_save_the_others():
    # Alone the case fits; in a family of three its stricter level needs more blocks than there are.
    alone = sequential_blocks(0.02, 0.012, level=0.008, margin_ratio=0.005, power=0.95)
    three = sequential_blocks(0.02, 0.012, level=0.008 / 3, margin_ratio=0.005, power=0.95)
    assert alone < three
    found = planned({"x": noise(0.2), "y": noise(0.3), "z": noise(0.012)}, max_blocks=alone)
    assert [case.gating for case in found] == [False, False, True]


def test_a_heavy_case_is_demoted_where_a_light_one_of_the_same_noise_is_not():
    # Both leave after five blocks where nothing has changed; with the heavy one to the end a budget holds fewer blocks.
    light, heavy = (CasePace(wall_s=wall_s, stays=(*[1.0] * 5, 0.0)) for wall_s in (1.0, 60.0))
    pace = GatePace(block_s=65.0, overhead_s=20.0, startup_s=4.0, cases={"light": light, "heavy": heavy})
    found = plan_cases(("light", "heavy"), {"light": noise(0.008), "heavy": noise(0.008)}, pace, TARGET)
    assert [case.gating for case in found] == [True, False]
    assert found[0].minutes == pytest.approx((20 + 5 * 65 + (found[0].blocks - 5) * 5) / 60, abs=0.05)
    assert (found[1].reason.code, found[1].reason.values["within"]) == ("plan.beyond_budget", 8)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "plan.never_measured"),
        (noise(math.nan), "plan.noise_unknown"),
        (noise(0.004, margin=0.025), "plan.below_floor"),
        (noise(0.5), "plan.too_noisy"),
    ],
)
def test_what_no_budget_would_reach_says_why(given, reason):
    case = plan_cases(("a",), {"a": given} if given else {}, PACE, TARGET)[0]
    assert not case.gating
    assert case.reason.code == reason
    assert suite_minutes([case]) is None


def test_no_plan_has_fewer_blocks_than_a_verdict_needs():
    assert planned({"a": noise(0.0001)})[0].blocks == 5


class TestGatesThatHonourAPlan:
    cases = (
        Case(benchmark="quiet", target="m:f"),
        Case(benchmark="loud", target="m:f"),
        Case(benchmark="aside", target="m:f", gating=Gating.ADVISORY),
    )

    def test_report_the_demoted_cases_only_and_say_so(self):
        plan = plan_of(*planned({"quiet": noise(0.004), "loud": noise(0.0232), "aside": noise(0.0234)}))
        cases, notes = planned_gating(self.cases, plan)
        assert [case.gating for case in cases] == [Gating.GATING, Gating.ADVISORY, Gating.ADVISORY]
        (note,) = notes
        assert (note.code, note.subject.case_id, note.values["date"]) == (
            "plan.beyond_max_blocks",
            "loud",
            "2026-01-02",
        )
        assert note.severity is Severity.NOTABLE

    def test_do_as_the_suite_says_without_one(self):
        assert planned_gating(self.cases, None) == (self.cases, ())

    def test_let_cases_gate_that_the_plan_does_not_know(self):
        assert planned_gating(self.cases, plan_of()) == (self.cases, ())
