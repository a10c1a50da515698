from __future__ import annotations

import pytest

from perfguard.gate.rules.rulings import (
    TOLERANCES,
    blind_looks,
    guard_numerics,
    paired_with_stored,
    tolerance_of,
    unchecked_note,
)
from perfguard.records.run import CaseChecks, Round
from perfguard.records.verdict import Outcome
from tests.compared_cases import verdict_without_times
from tests.found_facts import codes_of, fact_of

DECIDED = (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.INCONCLUSIVE)
FP32, BF16 = "step.x[dtype=fp32,mode=eager]", "step.x[batch=4,dtype=bf16]"


def judged(outcome=Outcome.IMPROVED, case_id=FP32):
    return verdict_without_times(case_id, outcome, "as.before")


def computed(baseline, candidate, case_id=FP32):
    """Blocks in which both arms computed so; each side is a mapping or one for each block."""
    before = baseline if isinstance(baseline, list) else [baseline] * 8
    after = candidate if isinstance(candidate, list) else [candidate] * len(before)
    return [
        CaseChecks(case_id=case_id, data_seed=block, baseline=old, candidate=new)
        for block, (old, new) in enumerate(zip(before, after, strict=True))
    ]


def guarded(checks, verdict=None):
    return guard_numerics([verdict or judged()], checks)[0]


@pytest.mark.parametrize("outcome", DECIDED)
def test_another_loss_is_not_the_same_computation(outcome):
    found = guarded(computed({"loss": 2.302}, {"loss": 2.118}), judged(outcome))
    assert found.outcome is Outcome.DIFFERENT
    assert codes_of(found.reasons) == ["result.different", "as.before"]
    assert found.reasons[0].values == {
        "name": "loss",
        "baseline": 2.302,
        "candidate": 2.118,
        "change_percent": pytest.approx(-7.99, abs=0.005),
        "is_scattered": False,
        "tolerance_percent": 0.1,
    }


@pytest.mark.parametrize(
    ("changed", "told"), [({"loss": 1.0, "timed_result": 1.0}, ["loss"]), ({"timed_result": 1.0}, ["timed_result"])]
)
def test_a_timed_call_that_differs_is_told_where_set_up_shows_nothing(changed, told):
    same = {"loss": 2.0, "timed_result": 2.0}
    found = guarded(computed(same, {**same, **changed}))
    assert [reason.values["name"] for reason in found.reasons if reason.code == "result.different"] == told


@pytest.mark.parametrize(
    ("blocks", "is_blind"),
    [
        ([{"loss": 2.0, "timed_result": 2.0}], True),
        ([{"result": 2.0, "timed_result": 2.001}], True),
        ([{"result": 2.0, "timed_result": 2.004}], False),
        ([{"loss": 2.0, "timed_result": value} for value in (2.0, 2.5, 2.6)], False),
        ([{"loss": 2.0, "timed_result": value} for value in (2.0, 2.0, 2.6)], True),
        ([{"loss": 2.0}], False),
        ([{"timed_result": 2.0}], False),
    ],
    ids=["equal", "within the tolerance", "beyond it", "mostly other", "mostly equal", "nothing timed", "no result"],
)
def test_a_timed_result_on_other_inputs_that_is_the_same_shows_nothing(blocks, is_blind):
    assert blind_looks(computed(blocks, blocks)) == ((FP32,) if is_blind else ())


def test_what_regressed_stays_so_and_tells_the_difference():
    found = guarded(computed({"loss": 2.0}, {"loss": 1.0}), judged(Outcome.REGRESSED))
    assert found.outcome is Outcome.REGRESSED
    assert codes_of(found.reasons) == ["as.before", "result.different"]
    assert found.reasons[1].values["change_percent"] == -50


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.INCOMPARABLE, Outcome.NO_BASELINE])
def test_what_could_not_be_compared_is_left_alone(outcome):
    verdict = judged(outcome)
    assert guarded(computed({"loss": 2.0}, {"loss": 1.0}), verdict) == verdict


@pytest.mark.parametrize("skipped", [0.0, 1e-9])
def test_a_candidate_that_skips_the_backward_pass_is_caught(skipped):
    found = guarded(computed({"loss": 2.0, "gradient_norm": 1.5}, {"loss": 2.0, "gradient_norm": skipped}))
    assert found.outcome is Outcome.DIFFERENT
    values = fact_of(found.reasons, "result.different").values
    assert (values["name"], values["baseline"], values["candidate"]) == ("gradient_norm", 1.5, skipped)


def test_a_candidate_that_returns_a_constant_is_caught():
    blocks = [{"result_norm": 40.0 + block / 10} for block in range(8)]
    assert guarded(computed(blocks, {"result_norm": 1.0})).outcome is Outcome.DIFFERENT
    losses = [{"loss": 2.0 + block / 10} for block in range(8)]
    assert guarded(computed(losses, {"loss": 2.35})).outcome is Outcome.DIFFERENT


def test_differences_up_and_down_do_not_cancel():
    before = [{"loss": 2.0}] * 8
    after = [{"loss": 2.0 * (1.02 if block % 2 else 0.98)} for block in range(8)]
    found = guarded(computed(before, after))
    assert found.outcome is Outcome.DIFFERENT
    values = fact_of(found.reasons, "result.different").values
    assert (values["is_scattered"], values["change_percent"]) == (True, None)


def test_a_change_from_zero_has_no_percentage():
    values = fact_of(guarded(computed({"loss": 0.0}, {"loss": 1.0})).reasons, "result.different").values
    assert (values["baseline"], values["candidate"], values["change_percent"]) == (0.0, 1.0, None)
    assert not values["is_scattered"]


def test_rounding_is_the_same_computation():
    verdict = judged()
    assert guarded(computed({"loss": 2.0, "gradient_norm": 1.5}, {"loss": 2.00001, "gradient_norm": 1.4995})) == verdict
    assert guarded(computed({"loss": 0.0}, {"loss": 0.0})) == verdict


def test_one_odd_block_of_eight_decides_nothing():
    after = [{"loss": 2.0}] * 7 + [{"loss": 3.0}]
    assert guarded(computed([{"loss": 2.0}] * 8, after)).outcome is Outcome.IMPROVED


def test_each_dtype_has_its_own_tolerance():
    moved = {"loss": 2.0}, {"loss": 2.01}
    assert guarded(computed(*moved)).outcome is Outcome.DIFFERENT
    assert guarded(computed(*moved, case_id=BF16), judged(case_id=BF16)).outcome is Outcome.IMPROVED
    assert tolerance_of("kernel.x[m=1,dtype=fp16,phase=forward]") == TOLERANCES["fp16"]
    assert tolerance_of("mine") == tolerance_of("mine[dtype=fp8]") == TOLERANCES["fp32"]


def test_where_an_arm_computes_in_another_dtype_the_wider_tolerance_holds():
    assert tolerance_of("step.x[dtype=fp32]", ["bf16"]) == TOLERANCES["bf16"]
    assert tolerance_of("step.x[dtype=bf16]", ["fp32"]) == TOLERANCES["bf16"]
    assert tolerance_of("step.x[dtype=fp32]", ["fp32", "fp8"]) == TOLERANCES["fp32"]


@pytest.mark.parametrize(
    ("dtype", "result", "gradient"), [("fp32", 0.001, 0.01), ("bf16", 0.05, 0.3), ("fp16", 0.01, 0.1)]
)
def test_a_difference_is_told_from_rounding_at_the_tolerance_of_the_dtype(dtype, result, gradient):
    case_id = f"kernel.x[dtype={dtype}]"
    for name, tolerance in (("loss", result), ("gradient_norm", gradient)):
        for share, outcome in ((0.98, Outcome.IMPROVED), (1.02, Outcome.DIFFERENT)):
            checks = computed({name: 4.0}, {name: 4.0 * (1 - share * tolerance)}, case_id=case_id)
            assert guarded(checks, judged(case_id=case_id)).outcome is outcome


def test_a_difference_of_the_very_tolerance_is_rounding():
    case_id = "kernel.x[dtype=fp16]"
    checks = computed({"gradient_norm": 10.0}, {"gradient_norm": 9.0}, case_id=case_id)
    assert guarded(checks, judged(case_id=case_id)).outcome is Outcome.IMPROVED


def test_gradients_may_differ_more_than_results():
    verdict = judged()
    assert guarded(computed({"gradient_norm": 2.0}, {"gradient_norm": 2.01})) == verdict
    assert guarded(computed({"gradient_norm": 2.0}, {"gradient_norm": 2.1})).outcome is Outcome.DIFFERENT


def test_zero_that_became_something_is_different():
    found = guarded(computed({"gradient_norm": 0.0}, {"gradient_norm": 1.0}))
    assert found.outcome is Outcome.DIFFERENT
    values = fact_of(found.reasons, "result.different").values
    assert (values["name"], values["baseline"], values["candidate"]) == ("gradient_norm", 0.0, 1.0)
    assert (values["change_percent"], values["is_scattered"], values["tolerance_percent"]) == (None, False, 1.0)


def test_numbers_that_only_one_arm_has_are_not_compared():
    verdict = judged()
    assert guarded(computed({"loss": 2.0, "gradient_norm": 1.0}, {"loss": 2.0})) == verdict
    assert guarded(computed({}, {"loss": 2.0})) == verdict
    assert guarded([]) == verdict


def round_of(seed, **checks):
    return Round(values_s=(0.1,), control_s=(0.1,), started_at=0.0, data_seed=seed, checks=checks)


def test_stored_and_fresh_rounds_meet_where_they_had_the_same_data():
    stored = {FP32: [round_of(1, loss=2.0), round_of(2, loss=3.0), round_of(None, loss=4.0), round_of(5)]}
    fresh = {FP32: [round_of(2, loss=3.5), round_of(9, loss=1.0), round_of(None, loss=1.0), round_of(5, loss=1.0)]}
    assert paired_with_stored(stored, fresh) == (
        CaseChecks(case_id=FP32, data_seed=2, baseline={"loss": 3.0}, candidate={"loss": 3.5}),
    )
    assert paired_with_stored({}, fresh) == ()


def test_what_was_not_checked_is_said():
    verdicts = [judged(), judged(case_id=BF16), judged(Outcome.FAILED, case_id="failed")]
    why = {"cause": "times_only"}
    (note,) = unchecked_note(verdicts, computed({"loss": 1.0}, {"loss": 1.0}), why=why)
    assert (note.code, note.values) == ("result.unchecked", {"cause": "times_only", "case_ids": (BF16,)})
    (note,) = unchecked_note(verdicts, [], why=why)
    assert note.values["case_ids"] == (FP32, BF16)
    assert unchecked_note(verdicts[2:], [], why=why) == ()
    assert len(unchecked_note(verdicts[:1], computed({"loss": 1.0}, {}), why=why)) == 1
