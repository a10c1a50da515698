from __future__ import annotations

import math

import pytest

from perfguard.gate.rules.compare import compare_paired, compare_rounds
from perfguard.gate.rules.policy import decide_cases
from perfguard.records.facts import Severity, fact
from perfguard.records.run import Arm, BlockConditions, CaseFailed, CaseSamples, PairedData, Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Design, Outcome, Policy
from perfguard.stats.p_values import p_outside
from perfguard.stats.paired import block_effect, estimate_paired
from tests.changed_values import replace

POLICY = Policy()
A, B = Case(benchmark="a", target="m:a"), Case(benchmark="b", target="m:b", gating=Gating.ADVISORY)


def block(case, number, ratio=1.0, samples=2):
    return CaseSamples(
        case_id=case.id, block=number, baseline_s=(1e-3,) * samples, candidate_s=(1e-3 * ratio,) * samples
    )


def conditions(count, stolen=()):
    return tuple(
        BlockConditions(
            block=number,
            duration_s=1.0,
            steal_ratio=0.5 if number in stolen else 0.0,
            involuntary_switches=None,
            control_s=(),
        )
        for number in range(count)
    )


def paired(samples, *, blocks=8, stolen=(), failures=()):
    return PairedData(
        case_ids=(A.id, B.id), samples=tuple(samples), conditions=conditions(blocks, stolen), failures=failures
    )


def test_every_case_is_compared_in_the_order_asked_for():
    data = paired([block(case, n, ratio) for n in range(8) for case, ratio in ((B, 0.9), (A, 1.1))])
    first, second = compare_paired(data, [A, B], POLICY)
    assert (first.case_id, first.gating, second.case_id, second.gating) == ("a", Gating.GATING, "b", Gating.ADVISORY)
    assert first.estimate.log_ratio == pytest.approx(math.log(1.1))
    assert (first.baseline_median_s, first.candidate_median_s) == pytest.approx((1e-3, 1.1e-3))
    assert (first.p_regressed, second.p_improved) == (2.0**-8, 2.0**-8)
    assert first.design is Design.PAIRED


def test_voided_blocks_do_not_count():
    data = paired([block(A, n, 3.0 if n == 2 else 1.0) for n in range(8)], stolen={2})
    (comparison,) = compare_paired(data, [A], POLICY)
    assert comparison.estimate.log_ratio == 0.0
    assert (comparison.estimate.blocks, comparison.blocks_voided) == (7, 1)


def test_a_block_in_two_pieces_is_one_unit():
    pieces = [piece for n in range(8) for piece in (block(A, n), block(A, n))]
    (comparison,) = compare_paired(paired(pieces), [A], POLICY)
    assert comparison.estimate.blocks == 8


def test_a_failed_case_has_a_problem_and_leaves_the_others_alone():
    failure = CaseFailed(case_id="a", arm=Arm.CANDIDATE, reason=fact("case.raised", error="out of memory"))
    data = paired([block(c, n) for n in range(8) for c in (A, B)], failures=(failure,))
    failed, fine = compare_paired(data, [A, B], POLICY)
    assert failed.estimate is None
    assert failed.p_regressed is failed.p_improved is None
    assert (failed.problem_outcome, failed.problem) == (
        Outcome.FAILED,
        fact("case.raised", severity=Severity.GRAVE, arm="candidate", error="out of memory"),
    )
    assert fine.problem is None


def test_a_case_without_a_measurement_is_failed_not_skipped():
    (comparison,) = compare_paired(paired([]), [A], POLICY)
    assert comparison.problem_outcome is Outcome.FAILED
    assert comparison.problem == fact("case.no_block")


def test_a_case_that_ran_in_one_arm_only_is_failed():
    one_armed = [replace(block(A, n), candidate_s=()) for n in range(8)]
    (comparison,) = compare_paired(paired(one_armed), [A], POLICY)
    assert comparison.problem_outcome is Outcome.FAILED
    assert comparison.problem == fact("case.no_common_block")


@pytest.mark.parametrize("bad", [0.0, -1e-3, math.nan, math.inf])
def test_a_value_that_is_no_time_fails_its_case_only(bad):
    broken = replace(block(A, 3), candidate_s=(1e-3, bad))
    data = paired([*(block(c, n) for n in range(8) for c in (A, B) if (c, n) != (A, 3)), broken])
    failed, fine = compare_paired(data, [A, B], POLICY)
    assert failed.problem_outcome is Outcome.FAILED
    assert failed.problem.code == "case.unusable_times"
    assert "sample 1 took" in failed.problem.values["error"]
    assert fine.estimate is not None


def test_five_blocks_decide_although_one_was_disturbed():
    data = paired(
        [block(c, n, r * (1 + 0.001 * n)) for n in range(5) for c, r in ((A, 8.8), (B, 1.0))], blocks=5, stolen={2}
    )
    slower, same = decide_cases(compare_paired(data, [A, replace(B, gating=Gating.GATING)], POLICY), POLICY)
    assert (slower.outcome, same.outcome) == (Outcome.REGRESSED, Outcome.UNCHANGED)
    assert slower.comparison.blocks_voided == 0


def test_a_case_whose_blocks_were_all_voided_is_inconclusive():
    data = paired([block(A, 2), block(A, 5)], stolen={2, 5})
    (comparison,) = compare_paired(data, [A], POLICY)
    assert comparison.problem_outcome is Outcome.INCONCLUSIVE
    assert comparison.blocks_voided == 2
    assert comparison.problem == fact("case.all_blocks_voided", blocks=2)


def rounds(*times, control=(1.0,)):
    return [Round(values_s=(time,), control_s=control, started_at=0.0) for time in times]


def test_rounds_are_compared_with_the_stored_ones():
    (comparison,) = compare_rounds({"a": rounds(1.0, 1.01, 0.99)}, {"a": rounds(1.5, 1.52, 1.49)}, [A], POLICY)
    assert comparison.design is Design.ROUNDS
    assert comparison.estimate.log_ratio == pytest.approx(math.log(1.5), abs=0.01)
    assert comparison.p_regressed < 1e-4 < comparison.p_improved
    assert (comparison.baseline_median_s, comparison.candidate_median_s) == (1.0, 1.5)


@pytest.mark.parametrize(
    ("baseline", "candidate", "outcome", "code"),
    [
        ([], rounds(1.0, 1.0), Outcome.NO_BASELINE, "case.not_in_stored_baseline"),
        (rounds(1.0, 1.0), [], Outcome.FAILED, "case.no_round"),
        (rounds(1.0), rounds(1.0, 1.0), Outcome.INCONCLUSIVE, "case.unusable_times"),
        (rounds(1.0, 1.0), rounds(1.0, 1.0, control=()), Outcome.INCONCLUSIVE, "case.unusable_times"),
        (rounds(1.0, 1.0), rounds(1.0, math.nan), Outcome.FAILED, "case.unusable_times"),
    ],
)
def test_rounds_that_cannot_be_compared_say_why(baseline, candidate, outcome, code):
    (comparison,) = compare_rounds({"a": baseline}, {"a": candidate}, [A], POLICY)
    assert comparison.problem_outcome is outcome
    assert comparison.problem.code == code
    assert comparison.estimate is None


def test_a_case_that_its_suite_skips_in_both_arms_is_advisory():
    failure = CaseFailed(
        case_id="a", arm=Arm.BASELINE, reason=fact("case.skipped", error="no GPU"), missing=True, skipped=True
    )
    (of_blocks,) = compare_paired(paired([], failures=(failure,)), [A], POLICY)
    (of_rounds,) = compare_rounds({}, {}, [A], POLICY, [failure])
    for comparison in (of_blocks, of_rounds):
        assert comparison.gating is Gating.ADVISORY
        assert (comparison.problem_outcome, comparison.problem) == (Outcome.NO_BASELINE, failure.reason)


def test_a_case_that_is_skipped_now_but_was_measured_for_the_baseline_fails():
    failure = CaseFailed(
        case_id="a", arm=Arm.CANDIDATE, reason=fact("case.skipped", error="no GPU"), missing=True, skipped=True
    )
    (comparison,) = compare_rounds({"a": rounds(1.0, 1.0)}, {}, [A], POLICY, [failure])
    assert (comparison.gating, comparison.problem_outcome) == (A.gating, Outcome.FAILED)
    assert comparison.problem.code == "case.skipped"


def test_a_case_that_failed_has_precedence_over_a_missing_baseline():
    failure = CaseFailed(case_id="a", arm=Arm.CANDIDATE, reason=fact("case.raised", error="crashed"))
    (comparison,) = compare_rounds({}, {}, [A], POLICY, [failure])
    assert comparison.problem_outcome is Outcome.FAILED


@pytest.mark.parametrize(("arm", "outcome"), [(Arm.BASELINE, Outcome.NO_BASELINE), (Arm.CANDIDATE, Outcome.FAILED)])
def test_a_case_is_new_where_the_baseline_lacks_it_and_lost_where_the_candidate_does(arm, outcome):
    failure = CaseFailed(case_id="a", arm=arm, reason=fact("case.missing", error="no such case"), missing=True)
    (of_blocks,) = compare_paired(paired([], failures=(failure,)), [A], POLICY)
    (of_rounds,) = compare_rounds({"a": rounds(1.0, 1.0)}, {}, [A], POLICY, [failure])
    assert of_blocks.problem_outcome is of_rounds.problem_outcome is outcome


@pytest.mark.parametrize(("arm", "outcome"), [(Arm.BASELINE, Outcome.FAILED), (Arm.CANDIDATE, Outcome.INVALID)])
def test_a_case_is_invalid_where_the_candidates_result_is_not_good_enough(arm, outcome):
    failure = CaseFailed(case_id="a", arm=arm, reason=fact("case.below_target", error="top-1 is 0.1"))
    (of_blocks,) = compare_paired(paired([], failures=(failure,)), [A], POLICY)
    (of_rounds,) = compare_rounds({"a": rounds(1.0, 1.0)}, {}, [A], POLICY, [failure])
    assert of_blocks.problem_outcome is of_rounds.problem_outcome is outcome


def test_blocks_count_by_how_little_their_samples_scatter():
    scattered = replace(block(A, 3, 1.2, samples=6), baseline_s=(1e-3, 2e-3, 1e-3, 3e-3, 1e-3, 2e-3))
    steady = [
        replace(block(A, n, samples=6), candidate_s=tuple(1e-3 * (1.01 + 1e-4 * ((n + k) % 3)) for k in range(6)))
        for n in range(8)
        if n != 3
    ]
    entries = [*steady[:3], scattered, *steady[3:]]
    (comparison,) = compare_paired(paired(entries), [A], POLICY)
    effects = [block_effect(entry.baseline_s, entry.candidate_s) for entry in entries]
    ratios, variances = [e.log_ratio for e in effects], [e.variance for e in effects]
    assert comparison.estimate == estimate_paired(ratios, POLICY.interval_level, variances)
    assert abs(comparison.estimate.log_ratio - math.log(1.01)) < 0.01
    assert abs(estimate_paired(ratios, POLICY.interval_level).log_ratio - math.log(1.01)) > 0.02


def test_a_case_tells_how_long_its_latest_block_took():
    known = replace(
        paired([block(A, n) for n in (0, 3, 1)]),
        conditions=tuple(replace(entry, duration_s=10.0 + entry.block) for entry in conditions(8)),
    )
    assert [found.block_s for found in compare_paired(known, [A, B], POLICY)] == [13.0, None]


def test_clean_is_never_wider_than_unchanged():
    data = paired([block(A, n, 1 + 0.001 * n) for n in range(8)])
    for clean in (0.01, 0.05):
        (found,) = compare_paired(data, [A], replace(POLICY, clean_ratio=clean))
        assert found.p_outside == p_outside(found.estimate, 0.02)
        assert found.p_unclean == p_outside(found.estimate, min(clean, 0.02))


def test_a_case_that_failed_had_no_block_voided():
    failure = CaseFailed(case_id="a", arm=Arm.CANDIDATE, reason=fact("case.raised", error="crashed"))
    (found,) = compare_paired(paired([], stolen={2}, failures=(failure,)), [A], POLICY)
    assert found.blocks_voided == 0
