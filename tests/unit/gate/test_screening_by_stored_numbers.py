from __future__ import annotations

import math

import pytest

from perfguard.gate.rules.policy import decide_cases
from perfguard.gate.rules.stored import cases_to_pair, has_machine_moved, left_open, speed_note
from perfguard.records.facts import fact
from perfguard.records.run import Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Design, Outcome, Policy
from tests.changed_values import replace
from tests.compared_cases import compared
from tests.found_facts import codes_of

POLICY = Policy(margin_ratio=0.005, equivalence_ratio=0.05)
SAME, SLOWER, FASTER, OPEN = 0.0, 0.2, -0.2, 0.05
WHY = fact("stored.incomparable", why="another machine")


def screened(*effects, advisory=()):
    """Cases a, b, c … and their verdicts by stored numbers; `advisory` names those that the suite does not gate on."""
    names = "abcdefgh"[: len(effects)]
    gating = [Gating.ADVISORY if name in advisory else Gating.GATING for name in names]
    cases = [Case(benchmark=name, target="bench:make", gating=g) for name, g in zip(names, gating, strict=True)]
    comparisons = [
        compared(
            n, effect, sd=0.01, error=0.02 if effect == OPEN else 0.004, margin=0.005, design=Design.ROUNDS, gating=g
        )
        for n, effect, g in zip(names, effects, gating, strict=True)
    ]
    return cases, decide_cases(comparisons, POLICY)


def paired(*effects, **more):
    return "".join(case.id for case in cases_to_pair(*screened(*effects, **more)))


def test_the_screened_cases_have_the_outcomes_that_their_names_say():
    _, verdicts = screened(SAME, SLOWER, FASTER, OPEN)
    assert [v.outcome.value for v in verdicts] == ["unchanged", "regressed", "improved", "inconclusive"]


def test_numbers_of_another_day_clear_and_neither_condemn_nor_praise():
    assert paired(SAME, SAME, SAME, SAME) == ""
    assert paired(SAME, SLOWER, SAME, SAME) == "b"
    assert paired(SAME, SAME, FASTER, SAME) == "c"
    assert paired(SAME, SAME, SAME, OPEN) == "d"


def test_where_half_of_the_cases_have_moved_nothing_is_cleared():
    assert paired(FASTER, FASTER, SAME, SAME) == "abcd"
    assert paired(FASTER, SLOWER, SAME, SAME) == "abcd"
    assert paired(FASTER, FASTER, SAME, SAME, SAME) == "ab"
    assert paired(FASTER, SAME) == "a"  # one case is no machine


def test_advisory_cases_are_neither_paired_nor_counted():
    assert paired(FASTER, FASTER, SAME, SAME, SAME, advisory="a") == "b"
    assert paired(SAME, SLOWER, advisory="b") == ""
    assert not has_machine_moved(*screened(FASTER, FASTER, FASTER, advisory="abc"))


def test_a_case_that_noise_has_demoted_is_paired():
    cases, verdicts = screened(SAME, SAME)
    noisy = decide_cases([compared("a", 0.01, sd=0.2, error=0.05, margin=0.005, design=Design.ROUNDS)], POLICY)
    assert noisy[0].gating is Gating.ADVISORY
    assert [case.id for case in cases_to_pair(cases, [noisy[0], verdicts[1]])] == ["a"]


@pytest.mark.parametrize("outcome", [Outcome.NO_BASELINE, Outcome.FAILED, Outcome.DIFFERENT])
def test_what_pairs_cannot_decide_is_not_paired(outcome):
    cases, (verdict,) = screened(SAME)
    for gating in Gating:  # a case that its suite skips is advisory
        assert cases_to_pair(cases, [replace(verdict, outcome=outcome, gating=gating)]) == ()


@pytest.mark.parametrize(("effect", "outcome"), [(SLOWER, "regressed"), (FASTER, "improved"), (SAME, "unchanged")])
def test_what_could_not_be_paired_stays_open_with_what_its_numbers_say(effect, outcome):
    _, (verdict,) = screened(effect)
    opened = left_open(verdict, why=(WHY,))
    assert opened.outcome is Outcome.INCONCLUSIVE
    assert codes_of(opened.reasons) == ["stored.left_open", WHY.code, *codes_of(verdict.reasons)]
    assert opened.reasons[0].values == {"outcome": outcome}


def rounds(*control_times):
    return {"a": [Round(values_s=(0.01,), control_s=(s,), started_at=0.0) for s in control_times]}


def test_a_machine_that_is_faster_than_it_was_is_told():
    (note,) = speed_note(rounds(0.010, 0.010, 0.012), rounds(0.008, 0.008, 0.0079))
    assert (note.code, note.values["log_ratio"]) == ("host.speed_changed", pytest.approx(math.log(0.8)))
    (note,) = speed_note(rounds(0.010), rounds(0.012))
    assert note.values["log_ratio"] == pytest.approx(math.log(1.2))


def test_of_a_machine_that_hardly_moved_nothing_is_said():
    assert speed_note(rounds(0.010), rounds(0.0101)) == ()
    assert len(speed_note(rounds(0.010), rounds(0.0103))) == 1
    assert speed_note({}, rounds(0.01)) == ()
    assert speed_note({"a": [Round(values_s=(0.01,), control_s=(), started_at=0.0)]}, rounds(0.01)) == ()


def test_what_is_open_or_advisory_is_left_as_it_is():
    _, (verdict,) = screened(OPEN)
    assert left_open(verdict, why=(WHY,)) is verdict
    _, (advisory,) = screened(SLOWER, advisory="a")
    assert left_open(advisory, why=(WHY,)) is advisory
