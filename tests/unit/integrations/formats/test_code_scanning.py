"""Verdicts as SARIF: a result for each case that is not in order, at the line of its culprit."""

from __future__ import annotations

import json

import pytest

from perfguard.integrations.formats.code_scanning import write_sarif
from perfguard.records.facts import fact, recorded_text
from perfguard.records.spec import Gating
from perfguard.records.verdict import Outcome
from tests.changed_values import replace
from tests.interchange_files import recorded
from tests.recorded_runs import NOISY, SLOWER


@pytest.fixture
def paired(tmp_path):
    return recorded("paired", tmp_path, commit="a" * 40)


def results(run):
    (found,) = json.loads(write_sarif(run))["runs"]
    rules = {rule["id"]: rule for rule in found["tool"]["driver"]["rules"]}
    assert len(rules) == len(found["tool"]["driver"]["rules"])
    for each in found["results"]:
        assert rules[each["ruleId"]]["shortDescription"]["text"]
        assert len(each["locations"]) == 1
    return found["results"]


def of_case(run, name):
    return [each for each in results(run) if each["message"]["text"].startswith(f"{name}:")]


def with_culprit(run, code, **changed):
    """The run whose first culprit of the slower case has another code or place."""
    attributions = tuple(
        replace(
            each,
            deltas=(),
            culprits=tuple(replace(culprit, fact=fact(code, **changed)) for culprit in each.culprits[:1]),
        )
        if each.case_id == SLOWER
        else each
        for each in run.result.attributions
    )
    return replace(run, result=replace(run.result, attributions=attributions))


def verdicts(run, **changed):
    found = tuple(
        replace(verdict, **changed) if verdict.case_id == SLOWER else verdict for verdict in run.result.gate.verdicts
    )
    return replace(run, result=replace(run.result, gate=replace(run.result.gate, verdicts=found)))


def test_a_regression_is_an_error_and_an_advisory_case_a_note(paired):
    levels = {each["level"] for each in results(paired)}
    assert "error" in levels
    assert {each["level"] for each in results(verdicts(paired, gating=Gating.ADVISORY))} == {"note"}
    assert not [each for each in results(paired) if NOISY in each["message"]["text"] and each["level"] == "error"]


@pytest.mark.parametrize(
    ("place", "uri", "line"),
    [
        ("train/gpt.py:22", "train/gpt.py", 22),
        ("/etc/passwd.py:1", "perfguard.toml", 1),
        ("../up.py:3", "perfguard.toml", 1),
        (None, "perfguard.toml", 1),
    ],
)
def test_it_stands_at_the_line_of_its_culprit_in_the_tree(paired, place, uri, line):
    run = with_culprit(paired, "optimizer.unfused", place=place, optimizer="Adam")
    if not any(each.case_id == SLOWER and each.culprits for each in run.result.attributions):
        pytest.fail("the recording has no culprit")
    (found,) = [each for each in results(run) if each["ruleId"] == "optimizer.unfused"]
    physical = found["locations"][0]["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == (uri, line)


def test_what_is_in_order_has_no_result(paired):
    for outcome in (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.ALLOWED, Outcome.SAME_CODE, Outcome.UNTOUCHED):
        assert len(results(verdicts(paired, outcome=outcome))) == len(results(paired)) - 1


def test_the_same_finding_has_the_same_fingerprint_in_every_run(paired):
    first, second = results(paired), results(replace(paired, commit="b" * 40))
    assert [each["partialFingerprints"] for each in first] == [each["partialFingerprints"] for each in second]
    assert len({each["partialFingerprints"]["perfguardCase/v1"] for each in first}) == len(first)


def test_hostile_texts_stay_texts(paired):
    found = results(verdicts(paired, reasons=(recorded_text("\x1b[31m \ud800 <script>"),)))
    assert not any("\x1b" in each["message"]["text"] for each in found)
