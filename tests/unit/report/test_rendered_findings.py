"""Findings as text and Markdown."""

from __future__ import annotations

import pytest

from perfguard.codec import from_builtins, to_builtins
from perfguard.recordings import upgraded
from perfguard.records.facts import Severity, Subject, fact, recorded_text
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import StepPhase
from perfguard.report.messages.advice import change_of, gain_of, where_of
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.findings import finding_rows, render_findings, render_findings_markdown
from tests.changed_values import replace
from tests.printed_text import printed

FINDING = Finding(
    code="advice.unfused_optimizer",
    severity=Severity.NOTABLE,
    subject=Subject(op="Adam", place="train.py:88"),
    values={"optimizer": "Adam", "is_foreach": False},
    seen=(fact("seen.calls", calls=186, ops=("mul_", "add_"), time_s=6.5e-3),),
    phases=(StepPhase.OPTIMIZER,),
    places=1,
    share=0.065,
    command="perfguard compare --case 'step[a=1,b_c=*]'",
)
BARE = Finding(
    code="advice.idle_cpus",
    severity=Severity.INFO,
    values={"wanted": 4},
    seen=(fact("seen.threads", threads=2, cpus=4),),
)
OLD = {
    "id": "unfused-optimizer",
    "title": "Adam updates {one} tensor at a time",
    "severity": "hint",
    "seen": ["186 calls a step of mul_/add_"],
    "where": "in Adam (train.py:88)",
    "ops": [],
    "share": 0.065,
    "gain": {"text": "732 → 717 ms a step", "source": "a paper"},
    "trial": {"change": "fused=True", "command": "perfguard compare"},
    "since_baseline": "Adam: fused → 62 small mul_",
}


def shown(*findings):
    return [line.rstrip() for line in printed(render_findings(findings)).splitlines()]


def labels(finding):
    return [label for label, _ in finding_rows(finding)]


def test_everything_that_is_known_is_a_row():
    assert shown(FINDING)[0] == f"notable {describe(FINDING)} (6 % of the step) [unfused-optimizer]"
    assert finding_rows(FINDING) == [
        ("seen", describe(FINDING.seen[0])),
        ("where", "Adam (train.py:88)"),
        ("gain", gain_of(FINDING)),
        ("try", change_of(FINDING)),
        ("then", "perfguard compare --case 'step[a=1,b_c=*]'"),
    ]


def test_what_is_not_known_is_left_out():
    assert labels(BARE) == ["seen", "gain", "try"]


def test_what_is_new_is_told_with_the_change():
    assert "  since   3 copies more" in shown(replace(FINDING, since_baseline=(recorded_text("3 copies more"),)))


@pytest.mark.parametrize(
    ("phases", "module", "places", "line", "text"),
    [
        ((StepPhase.FORWARD, StepPhase.BACKWARD), "Net.a", 3, None, "forward and backward of Net.a, 3 places"),
        ((StepPhase.LOAD,), None, 1, "data.py:7", "load (data.py:7)"),
        ((), None, 0, None, ""),
    ],
)
def test_a_place_is_named_by_phases_module_and_line(phases, module, places, line, text):
    found = replace(FINDING, phases=phases, places=places, subject=Subject(op=module, place=line))
    assert where_of(found) == text


def test_a_finding_of_schema_1_keeps_its_texts():
    finding = from_builtins(upgraded(OLD, Finding), Finding, source="old")
    assert (finding.code, finding.id, finding.severity) == (
        "advice.unfused_optimizer", "unfused-optimizer", Severity.INFO,
    )  # fmt: skip
    assert shown(finding) == [
        "info    Adam updates {one} tensor at a time (6 % of the step) [unfused-optimizer]",
        "  seen    186 calls a step of mul_/add_",
        "  where   in Adam (train.py:88)",
        "  since   Adam: fused → 62 small mul_",
        "  gain    732 → 717 ms a step (a paper)",
        "  try     fused=True",
        "  then    perfguard compare",
    ]


def test_a_finding_of_today_is_not_upgraded():
    plain = to_builtins(FINDING)
    assert upgraded(plain, Finding) == plain


def test_a_code_of_a_newer_version_is_shown_without_what_is_not_known_of_it():
    assert labels(replace(BARE, code="advice.of_tomorrow")) == ["seen"]


def test_no_finding_is_told_as_that():
    assert shown() == ["findings   none"]
    assert render_findings_markdown(()) == ""


def test_names_of_a_program_cannot_move_the_terminal():
    hostile = replace(FINDING, values={"optimizer": "a\x1b[31mb", "is_foreach": False})
    assert "a [31mb" in shown(hostile)[0]
    assert "\x1b" not in "".join(shown(hostile))


def test_markdown_lists_them_with_the_command_as_code():
    lines = render_findings_markdown((FINDING, BARE)).splitlines()
    assert lines[0].startswith("- **notable**: ")
    assert lines[0].endswith(" (6 % of the step) \\[unfused-optimizer\\]")
    assert "mul\\_, add\\_" in lines[1]
    assert lines[5] == "  - then: `perfguard compare --case 'step[a=1,b_c=*]'`"
    assert lines[6].startswith("- **info**: ")
