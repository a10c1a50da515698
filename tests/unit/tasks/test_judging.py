"""When the speed of a cell counts, and which cell is recommended."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact
from perfguard.records.task_results import CellOutcome
from perfguard.records.tasks import Hardware, QualityKind, Scenario
from perfguard.tasks.judging import judge, recommendation
from tests.changed_values import replace
from tests.task_records import FIRST, LOADED, NOISE, SECOND, answered, measured, plan, speed, timed, trained


def only(runs, **options):
    (result,) = judge(plan(FIRST, **options), runs)
    return result


def with_quality(**changes):
    run = answered(FIRST)
    return replace(run, quality=replace(run.quality, **changes))


def test_a_cell_that_keeps_all_rules_is_valid_with_the_median_of_its_rounds():
    result = only(measured(FIRST))
    assert (result.outcome, result.score, result.rounds, result.quality) == (CellOutcome.VALID, 0.01, 5, 0.9)
    assert result.reasons == ()


@pytest.mark.parametrize(
    ("kind", "has_real_weights", "outcome"),
    [
        (QualityKind.SEEDED_WEIGHTS, False, CellOutcome.SPEED_ONLY),
        (QualityKind.REAL_WEIGHTS, False, CellOutcome.SPEED_ONLY),
        (QualityKind.REAL_WEIGHTS, True, CellOutcome.VALID),
        (QualityKind.LABELLED, False, CellOutcome.VALID),  # labels are right whatever made the answers
    ],
)
def test_agreement_with_random_weights_is_never_valid(kind, has_real_weights, outcome):
    runs = measured(FIRST, loaded=replace(LOADED, has_real_weights=has_real_weights))
    assert only(runs, kind=kind).outcome is outcome


@pytest.mark.parametrize("runs", [[], measured(FIRST)[:3]])
def test_a_cell_that_was_not_measured_to_the_end_says_so(runs):
    result = only(runs)
    assert result.outcome is CellOutcome.UNMEASURED
    assert [(reason.code, reason.values) for reason in result.reasons] == [
        ("task.ended_early", {"done": len(runs), "wanted": 6})
    ]


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        (measured(FIRST, quality=0.449), "task.quality_missed"),
        (measured(FIRST, loaded=replace(LOADED, ran_in="bf16")), "task.other_precision"),
        (measured(FIRST, loaded=replace(LOADED, snr_db=39.0)), "task.not_fp32"),
        (measured(FIRST, is_valid=False), "task.loadgen_invalid"),
        (measured(FIRST, is_confirmed=False), "task.clocks_disagree"),
        ([*measured(FIRST)[:-1], with_quality(is_as_in_speed=False)], "task.answers_differ"),
    ],
)
def test_a_broken_rule_makes_a_cell_invalid_however_fast_it_is(runs, code):
    result = only(runs)
    assert result.outcome is CellOutcome.INVALID
    assert result.reasons[0].code == code


def test_a_contended_cpu_is_noted_and_changes_no_outcome():
    result = only(measured(FIRST, wall_per_cpu=1.3))
    assert result.outcome is CellOutcome.VALID
    assert [reason.code for reason in result.reasons] == ["task.contended"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("task.refused", CellOutcome.REFUSED),
        ("task.no_hardware", CellOutcome.REFUSED),
        ("task.crashed", CellOutcome.FAILED),
        ("task.silent", CellOutcome.FAILED),
        ("task.interrupted", CellOutcome.UNMEASURED),
    ],
)
def test_a_problem_is_the_outcome(code, outcome):
    problem = replace(timed(FIRST, 0, None), problem=fact(code))
    assert only([problem]).outcome is outcome


def test_a_training_counts_where_each_seed_reaches_the_target():
    runs = [trained(FIRST, 0, 0.3, 0.46), trained(FIRST, 1, 0.2, 0.4, 0.47), trained(FIRST, 2, 0.5)]
    (result,) = judge(replace(plan(FIRST, scenario=Scenario.TRAINING), rounds=3), runs)
    assert (result.outcome, result.score, result.rounds, result.quality) == (CellOutcome.VALID, 2.0, 3, 0.46)
    assert [training.seed for training in result.trainings] == [0, 1, 2]


def test_a_seed_that_misses_the_target_makes_a_training_invalid():
    runs = [trained(FIRST, 0, 0.46), trained(FIRST, 1, 0.2, 0.4, is_reached=False)]
    result = only(runs, scenario=Scenario.TRAINING)
    assert (result.outcome, result.score, result.quality) == (CellOutcome.INVALID, 1.0, 0.4)
    (reason,) = result.reasons
    assert reason.code == "task.not_reached"
    assert (reason.values["missed"], reason.values["seeds"], reason.values["quality"]) == (1, 2, 0.4)


def test_a_training_that_was_cut_short_does_not_count():
    runs = [trained(FIRST, seed, 0.5) for seed in range(4)]
    assert only(runs, scenario=Scenario.TRAINING).outcome is CellOutcome.UNMEASURED
    assert only([*runs, trained(FIRST, 4, 0.5)], scenario=Scenario.TRAINING).outcome is CellOutcome.VALID


def test_trainings_are_compared_seed_by_seed():
    runs = [trained(FIRST, seed, *[0.1] * (seed + 1), 0.5) for seed in range(5)]
    runs += [trained(SECOND, seed, *[0.1] * (2 * seed + 3), 0.5) for seed in range(5)]
    asked = plan(FIRST, SECOND, scenario=Scenario.TRAINING)
    results = judge(asked, runs)
    assert results[1].over_reference.ratio == pytest.approx(2.0)
    assert recommendation(results, runs, asked) == (FIRST.id, True)


def test_what_was_not_reached_is_unmeasured():
    assert only([]).outcome is CellOutcome.UNMEASURED
    assert only(measured(FIRST)[:2]).outcome is CellOutcome.UNMEASURED


def test_a_faster_cell_is_recommended_with_its_interval():
    runs = [*measured(FIRST), *measured(SECOND, 0.005, noise=NOISE[::-1])]
    asked = plan(FIRST, SECOND)
    results = judge(asked, runs)
    ratio = results[1].over_reference
    assert ratio.ratio == pytest.approx(0.5, abs=0.01)
    assert ratio.lower < 0.5 < ratio.upper < 0.53
    assert results[0].over_reference is None
    assert recommendation(results, runs, asked) == (SECOND.id, True)


def test_equal_cells_are_not_resolved():
    runs = [*measured(FIRST), *measured(SECOND, 0.00999, noise=NOISE[::-1])]
    asked = plan(FIRST, SECOND)
    results = judge(asked, runs)
    assert results[1].over_reference.lower < 1 < results[1].over_reference.upper
    assert recommendation(results, runs, asked)[1] is False


def test_a_fast_cell_that_misses_its_quality_is_not_recommended():
    runs = [*measured(FIRST), *measured(SECOND, 0.001, quality=0.1)]
    asked = plan(FIRST, SECOND)
    assert recommendation(judge(asked, runs), runs, asked) == (FIRST.id, True)


def test_offline_more_samples_a_second_are_faster():
    rate = {"score_s": None, "p90_s": None, "own_score_s": None, "own_p90_s": None}
    runs = [
        *(timed(FIRST, n, speed(1.0, samples_per_s=100.0 * f, **rate)) for n, f in enumerate(NOISE)),
        *(timed(SECOND, n, speed(1.0, samples_per_s=200.0 * f, **rate)) for n, f in enumerate(NOISE)),
        *(answered(cell) for cell in (FIRST, SECOND)),
    ]
    asked = plan(FIRST, SECOND, scenario=Scenario.OFFLINE)
    results = judge(asked, runs)
    assert [result.score for result in results] == [100.0, 200.0]
    assert results[1].over_reference.ratio == pytest.approx(0.5)
    assert recommendation(results, runs, asked)[0] == SECOND.id


def test_two_rounds_give_no_interval():
    runs = [*measured(FIRST, noise=NOISE[:2]), *measured(SECOND, noise=NOISE[:2])]
    assert judge(plan(FIRST, SECOND), runs)[1].over_reference is None


def test_equal_cells_of_one_run_have_names_of_their_own():
    assert [replace(FIRST, copy=copy).id for copy in (1, 2)] == ["eager-fp32-1", "eager-fp32-1#2"]
    assert replace(FIRST, copy=2, hardware=Hardware.E_CORES).id == "eager-fp32-1@e-cores#2"
