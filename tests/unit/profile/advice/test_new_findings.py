"""Which findings a change called for, and which were there before or come and go with the noise."""

from __future__ import annotations

import pytest

from perfguard.profile.advice.advise import advise, new_findings
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.ops import ChangeClass
from tests.changed_values import replace
from tests.finding_evidence import OPTIMIZER, change, comparison, delta, evidence, op, primitive, software

ADAM = {"module": "Adam", "phase": OPTIMIZER, "shapes": "[64]"}
UPDATES = op("mul_", 20, calls=62, **ADAM)
COPIES = op("copy_", 6, shapes="[8,64,56,56] [8,64,56,56]", layouts="contiguous channels_last")
NEW_UPDATES = delta(UPDATES, times=2, kind=ChangeClass.NEW)


def ids(findings):
    return [finding.id for finding in findings]


def news(before, after, compared):
    return new_findings(advise(evidence(*before)), advise(evidence(*after, comparison=compared)), compared)


def test_what_only_the_candidate_does_is_told_with_its_evidence_and_how_to_try_it():
    (finding,) = news([COPIES], [COPIES, UPDATES], comparison(NEW_UPDATES))
    assert finding.id == "unfused-optimizer"
    assert finding.seen
    assert finding.command


def test_what_both_arms_do_is_not_told():
    assert news([UPDATES], [UPDATES], comparison(delta(UPDATES, times=1.2))) == ()


def test_what_the_candidate_no_longer_does_is_not_told():
    assert news([UPDATES], [], comparison(delta(UPDATES, times=0.5, kind=ChangeClass.GONE))) == ()


def test_what_became_graver_is_told_again():
    (finding,) = advise(evidence(UPDATES))
    hint = replace(finding, severity=Severity.INFO)
    compared = comparison(delta(UPDATES, times=2))
    assert new_findings([hint], [replace(finding, severity=Severity.NOTABLE)], compared)
    assert new_findings([finding], [hint], compared) == ()


@pytest.mark.parametrize("kind", [ChangeClass.UNCHANGED, ChangeClass.FASTER, ChangeClass.MOVED])
def test_where_nothing_became_more_a_finding_only_crossed_its_threshold(kind):
    assert news([], [UPDATES], comparison(delta(UPDATES, times=1, kind=kind))) == ()


def test_a_change_elsewhere_calls_for_no_finding_here():
    elsewhere = delta(op("mul_", 9, module="Net.body"), times=2, kind=ChangeClass.NEW)
    assert news([], [UPDATES], comparison(elsewhere)) == ()


def test_a_change_of_the_op_counts_is_reason_enough():
    compared = comparison(changes=[change("fusion", "optimizer.unfused", module="Adam")])
    (finding,) = news([], [UPDATES], compared)
    assert finding.since_baseline == (fact("optimizer.unfused"),)


def test_primitives_are_news_only_where_something_is_executed_otherwise():
    reference = primitive("matmul", "ref:any", 20)
    assert news([], [reference], comparison()) == ()
    changed = comparison(changes=[change("layout", "layout.lost")])
    assert ids(news([], [reference], changed)) == ["reference-kernel"]


def test_what_is_told_of_a_whole_process_needs_no_op():
    capped = evidence(software=software(ONEDNN_MAX_CPU_ISA="AVX2"), isa_class="avx512_core_bf16")
    assert ids(new_findings((), advise(capped), comparison())) == ["capped-isa"]


def test_the_order_of_the_advice_stays():
    after = advise(evidence(UPDATES, COPIES, primitive("matmul", "ref:any", 2)))
    compared = comparison(
        NEW_UPDATES,
        delta(COPIES, times=2, kind=ChangeClass.NEW),
        changes=[change("implementation", "implementation.changed")],
    )
    assert ids(new_findings((), after, compared)) == ids(after)


@pytest.mark.parametrize(("rule", "is_told"), [("reorders", True), ("implementation", False)])
def test_reorders_are_news_only_where_there_are_more_of_them(rule, is_told):
    reorder = primitive("reorder", "jit:uni", 9)
    compared = comparison(changes=[change(rule, "some.change")])
    assert ("reorders" in ids(news([], [reorder], compared))) is is_told
