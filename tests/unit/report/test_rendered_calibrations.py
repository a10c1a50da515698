from __future__ import annotations

import math

import pytest

from perfguard.records.calibration import (
    CalibratedCase,
    CalibrationSummary,
    CasePace,
    FalseAlarms,
    GatePace,
    PlannedCase,
)
from perfguard.records.estimate import Interval
from perfguard.records.facts import fact
from perfguard.report.terminal.calibration import render_calibration, render_plan
from tests.calibrated_machines import plan_of
from tests.changed_values import replace
from tests.printed_text import printed

BAND = Interval(lower=-0.3, upper=0.2, level=0.95)
CASE = CalibratedCase(
    case_id="kernel.x[m=1]",
    gating=True,
    gates=10,
    blocks=120,
    block_sd=0.0123,
    block_sd_interval=Interval(lower=0.011, upper=0.014, level=0.95),
    intraclass_correlation=0.42,
    autocorrelation=0.35,
    autocorrelation_band=BAND,
    placebo_gates=8,
    placebo_spread=0.004,
    placebo_floor_ratio=0.0111,
    margin_ratio=0.0111,
    mde=((2, math.inf), (5, 3.5), (10, 0.021)),
)
UNKNOWN = replace(
    CASE,
    case_id="kernel.y",
    gating=False,
    block_sd=math.nan,
    block_sd_interval=Interval(lower=0.0, upper=math.inf, level=0.95),
    intraclass_correlation=math.nan,
    autocorrelation=math.nan,
    placebo_gates=0,
)
SUMMARY = CalibrationSummary(
    suite="pr",
    first_at="2026-01-02T00:00:00Z",
    latest_at="2026-01-05T00:00:00Z",
    gates=10,
    placebo_gates=8,
    placebo_limit=0.0013,
    margin_ratio=0.0025,
    pace=GatePace(block_s=4.5, overhead_s=21.0),
    false_alarms=FalseAlarms(count=0, gates=9, bound=0.28),
    cases=(CASE, UNKNOWN),
)


@pytest.mark.parametrize("width", [200, 80])
def test_every_number_of_a_case_is_shown_however_wide_the_terminal_is(width):
    text = printed(render_calibration(SUMMARY, width=width), width)
    for expected in ("kernel.x", "1.23 %", "[1.10 %, 1.40 %]", "0.42", "0.35 !", "1.11 %", "> 100 %", "2.10 %"):
        assert expected in text, expected
    assert "kernel.y (advisory)" in text
    assert "10, 9 of them reached a verdict, 8 had relocated arms; 2026-01-02 to 2026-01-05" in " ".join(text.split())
    assert "nan" not in text


def test_dependent_blocks_are_named():
    text = printed(render_calibration(SUMMARY, width=200), 200)
    assert "neighbouring blocks are not independent (outside the 95 % band of chance): kernel.x" in text


def test_without_relocated_arms_it_says_what_is_missing():
    text = printed(render_calibration(replace(SUMMARY, placebo_gates=0), width=200), 200)
    assert "no placebo floor is known: run `perfguard calibrate --placebo`" in text


def test_nothing_measured_is_no_error():
    unknown = GatePace(block_s=math.nan, overhead_s=math.nan)
    empty = replace(SUMMARY, gates=0, cases=(), first_at=None, latest_at=None, pace=unknown)
    assert "nan" not in printed(render_calibration(empty, width=200), 200)


def test_says_whether_the_effects_reckon_with_cases_that_leave():
    text = printed(render_calibration(SUMMARY, width=200), 200)
    assert "pace       4.500 s a block of all cases; 21.00 s beside them" in text
    assert "all cases measured to the end, because no gate recorded what single cases take" in text
    cases = {CASE.case_id: CasePace(wall_s=2.5, stays=(1.0,))}
    known = replace(SUMMARY, pace=GatePace(block_s=4.5, overhead_s=21.0, startup_s=2.0, cases=cases))
    text = printed(render_calibration(known, width=200), 200)
    assert "pace       4.500 s a block of all cases, 2.000 s of it to start the workers; 21.00 s beside them" in text
    assert "ends red with 80 % power; the other cases leave as they do in A/A gates" in text


def planned(case_id, *, gating, reason="plan.never_measured"):
    return PlannedCase(
        case_id=case_id,
        block_sd=0.01 if gating else None,
        margin_ratio=0.005,
        blocks=20 if gating else None,
        minutes=3.5 if gating else None,
        gating=gating,
        reason=fact(reason),
    )


def test_a_plan_shows_what_gates_and_why_the_rest_does_not():
    plan = plan_of(
        planned("a[b=1]", gating=True), planned("c", gating=False, reason="plan.never_measured"), minutes=3.5
    )
    text = printed(render_plan(plan, width=100), 100)
    assert "to find 2.00 % with 95 % power; a budget of 10 min 00 s holds 60 blocks of all cases" in text
    assert "gating" in text
    assert "c is advisory: never measured" in text
    assert "1 of 2 cases gate; the suite needs 3.5 minutes" in text


def test_a_plan_without_a_gating_case_says_what_to_change():
    text = printed(
        render_plan(plan_of(planned("c", gating=False, reason="plan.never_measured"), minutes=None), width=100), 100
    )
    assert "ask for a larger effect, or raise what binds: --budget" in text
