"""What advice saved where it was measured."""

from __future__ import annotations

import math

import pytest

from perfguard.benchmarks.catalog import BENCHMARKS
from perfguard.profile.advice.advise import RULES
from perfguard.profile.advice.gains import expected_gains, known_gains, measured_gains
from perfguard.profile.advice.toggles import ANSWERS
from perfguard.records.steps.findings import PREFIX
from tests.finding_evidence import made_gain


def test_one_fact_a_machine_has_the_least_and_the_most_of_its_cases():
    known = (
        made_gain("optimizer=fused", speedup=1.25, case_id="step.a"),
        made_gain("optimizer=fused", speedup=0.8, case_id="step.b"),
        made_gain("dtype=bf16", speedup=2.0),
    )
    (found,) = measured_gains("unfused_optimizer", None, known)
    assert found.code == "gain.measured"
    assert found.values["setting"] == "optimizer=fused"
    assert found.values["best_log_ratio"] == pytest.approx(math.log(0.8))
    assert found.values["worst_log_ratio"] == pytest.approx(math.log(1.25))
    assert (found.values["cases"], found.values["machine"]) == (2, "machine-a")


def test_this_machine_comes_first():
    known = tuple(made_gain("dtype=bf16", speedup=2.0, machine_id=name) for name in ("a", "b", "c"))
    assert [each.values["machine"] for each in measured_gains("bf16_untried", "b", known)] == ["b", "a", "c"]


def test_advice_that_nobody_measured_has_no_gain():
    assert measured_gains("reorders", None, (made_gain("dtype=bf16", speedup=2.0),)) == ()
    assert measured_gains("bf16_untried", None, ()) == ()


def test_committed_gains_are_of_settings_that_exist_and_have_intervals_around_them():
    known = {spec.name: dict((*spec.parameters, *spec.options)) for spec in BENCHMARKS}
    for gain in known_gains():
        name, value = gain.toggle.split("=")
        assert value in known[gain.case_id.partition("[")[0]][name]
        assert gain.lower <= gain.speedup <= gain.upper


def test_every_answer_belongs_to_a_finding():
    assert set(ANSWERS) <= {PREFIX + code for rule in RULES for code in rule.codes}


def test_gains_of_the_same_benchmark_are_expected_before_those_of_others():
    known = (
        made_gain("dtype=bf16", speedup=2.0, case_id="step.a[x=1]"),
        made_gain("dtype=bf16", speedup=4.0, case_id="step.a[x=2]"),
        made_gain("dtype=bf16", speedup=1.0, case_id="step.b[x=1]"),
        made_gain("optimizer=fused", speedup=1.25, case_id="step.b[x=1]"),
    )
    assert expected_gains("step.a", known) == pytest.approx({("dtype", "bf16"): 0.625, ("optimizer", "fused"): 0.2})
    assert expected_gains("step.c", known)["dtype", "bf16"] == pytest.approx((0.5 + 0.75 + 0.0) / 3)
