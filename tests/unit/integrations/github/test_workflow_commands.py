"""What a step says to the runner, and which verdicts become annotations where."""

from __future__ import annotations

import pytest

from perfguard.integrations.github.job import (
    MOST_ANNOTATIONS,
    Annotation,
    Level,
    annotation_line,
    annotations_of,
    output_lines,
    stop_and_resume,
)
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.culprits import culprit_texts
from perfguard.report.lines import names_in
from tests.changed_values import replace
from tests.commented_results import PASSED, REGRESSED, SLOWER, gate_result, judged, regressed
from tests.composite_action import commands_in, parse_outputs
from tests.example_attribution import attribution_of


def test_an_annotation_has_its_place_and_keeps_its_lines():
    annotation = Annotation(level=Level.ERROR, title="a: b, c", message="1 %\nnext", file="train.py", line=88)
    assert annotation_line(annotation) == "::error file=train.py,line=88,title=a%3A b%2C c::1 %25%0Anext"


def test_a_long_message_is_cut():
    annotation = Annotation(level=Level.NOTICE, title="long", message="x" * 1500)
    assert annotation_line(annotation) == f"::notice title=long::{'x' * 1000}"


def test_nothing_between_stop_and_resume_is_a_command():
    stop, resume = stop_and_resume()
    assert commands_in(f"{stop}\n::error::forged\n##[error]forged\n{resume}\n::notice::ours") == ["::notice::ours"]
    assert stop_and_resume() != (stop, resume)


def test_outputs_keep_their_lines():
    assert parse_outputs(output_lines({"a": "1", "b": "two\nlines"})) == {"a": "1", "b": "two\nlines"}


def placed(source: str):
    attribution = attribution_of(SLOWER)
    deltas = tuple(replace(delta, source=source) for delta in attribution.deltas)
    culprits = tuple(without_place(culprit) for culprit in attribution.culprits)
    blamed = replace(attribution, culprits=culprits, deltas=deltas)
    return annotations_of(replace(REGRESSED, attributions=(blamed,)))[0]


def without_place(culprit):
    return replace(culprit, fact=replace(culprit.fact, subject=replace(culprit.fact.subject, place=None)))


def test_the_place_of_the_culprit_comes_before_those_of_its_ops():
    first = annotations_of(replace(REGRESSED, attributions=(attribution_of(SLOWER),)))[0]
    assert (first.file, first.line) == ("train.py", 88)


def test_a_regression_is_told_at_the_line_of_its_culprit():
    first = placed("models/resnet.py:12")
    assert (first.level, first.file, first.line) == (Level.ERROR, "models/resnet.py", 12)
    assert first.title == f"perfguard: {names_in(REGRESSED)[SLOWER]} regressed"
    (line,) = first.message.splitlines()[1:]
    assert line.partition(" (")[0] == culprit_texts(attribution_of(SLOWER))[0].partition(" (")[0]


def test_an_op_without_a_place_leaves_it_to_the_next_op():
    attribution = attribution_of(SLOWER)
    (culprit,) = attribution.culprits
    ops = tuple(delta.key for delta in attribution.deltas[:3])
    deltas = tuple(
        replace(delta, source=source)
        for delta, source in zip(attribution.deltas, (None, "model.py:3", "model.py:4"), strict=False)
    )
    blamed = replace(attribution, culprits=(replace(without_place(culprit), ops=ops),), deltas=deltas)
    first = annotations_of(replace(REGRESSED, attributions=(blamed,)))[0]
    assert (first.file, first.line) == ("model.py", 3)


@pytest.mark.parametrize(
    "source", ["/etc/passwd.py:1", "../up.py:1", "a/../../b.py:1", "x.txt:1", "x.py:1:2", "x.py", ""]
)
def test_a_place_outside_the_repository_is_none(source):
    assert (placed(source).file, placed(source).line) == (None, None)


def test_ten_of_a_kind_are_told_regressions_first():
    verdicts = [judged(f"f{index}", Outcome.FAILED) for index in range(8)]
    verdicts += [regressed(f"r{index}") for index in range(8)]
    verdicts += [judged(f"i{index}", Outcome.INCONCLUSIVE, 0.0) for index in range(15)]
    told = annotations_of(gate_result(GateOutcome.REGRESSED, "many", *verdicts))
    levels = [annotation.level for annotation in told]
    assert levels == [Level.ERROR] * MOST_ANNOTATIONS + [Level.WARNING] * MOST_ANNOTATIONS
    assert all(" r" in annotation.title for annotation in told[:8])


def test_what_gates_is_told_before_what_does_not():
    verdicts = [regressed(f"a{index}", gating=Gating.ADVISORY, signals=()) for index in range(MOST_ANNOTATIONS)]
    verdicts.append(judged("gating", Outcome.INCONCLUSIVE, 0.0))
    told = annotations_of(gate_result(GateOutcome.INCONCLUSIVE, "noisy", *verdicts))
    assert [annotation.level for annotation in told] == [Level.WARNING] * MOST_ANNOTATIONS
    assert told[0].title == "perfguard: gating inconclusive"


def test_an_advisory_regression_is_a_warning():
    (annotation,) = annotations_of(
        gate_result(GateOutcome.PASS, "advisory", regressed("x", gating=Gating.ADVISORY, signals=()))
    )
    assert annotation.level is Level.WARNING


def test_an_accepted_slowdown_is_a_notice():
    (annotation,) = annotations_of(gate_result(GateOutcome.PASS, "allowed", judged("x", Outcome.ALLOWED, 0.03)))
    assert annotation.level is Level.NOTICE


def test_what_is_in_order_is_not_told():
    assert annotations_of(PASSED) == ()
    assert annotations_of(replace(PASSED, gate=None)) == ()


def test_identical_arms_bring_no_warning_of_noise_but_their_failures():
    result = gate_result(
        GateOutcome.PASS, "identical", judged("noisy", Outcome.INCONCLUSIVE, 0.1), judged("broken", Outcome.FAILED)
    )
    told = annotations_of(replace(result, gate=replace(result.gate, identical=True)))
    assert [annotation.title for annotation in told] == ["perfguard: broken failed"]
