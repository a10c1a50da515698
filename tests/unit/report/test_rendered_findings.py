"""Findings as text and Markdown."""

from __future__ import annotations

from dataclasses import replace

from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding, Gain, Severity, Trial
from perfguard.report.terminal.findings import render_findings, render_findings_markdown
from tests.printed_text import printed

FINDING = Finding(
    id="unfused-optimizer",
    title="Adam updates one tensor at a time",
    severity=Severity.NOTABLE,
    seen=("186 calls a step of mul_/add_", "they take 6.500 ms"),
    where="in Adam (train.py:88)",
    ops=(),
    share=0.065,
    gain=Gain(text="732 → 717 ms a step", source="a [measurement]"),
    trial=Trial(change="torch.optim.Adam(…, fused=True)", command="perfguard compare --case 'step[a=1,b_c=*]'"),
)
BARE = Finding(
    id="threads",
    title="more threads than CPUs",
    severity=Severity.GRAVE,
    seen=("8 threads",),
    where="",
    ops=(),
    share=None,
    gain=UNKNOWN_GAIN,
    trial=Trial(change="fewer", command=""),
)


def shown(*findings):
    return [line.rstrip() for line in printed(render_findings(findings)).splitlines()]


def test_everything_that_is_known_is_a_row():
    assert shown(FINDING) == [
        "notable Adam updates one tensor at a time (6 % of the step) [unfused-optimizer]",
        "  seen    186 calls a step of mul_/add_",
        "  seen    they take 6.500 ms",
        "  where   in Adam (train.py:88)",
        "  gain    732 → 717 ms a step (a [measurement])",
        "  try     torch.optim.Adam(…, fused=True)",
        "  run     perfguard compare --case 'step[a=1,b_c=*]'",
    ]


def test_what_is_not_known_is_left_out():
    assert shown(BARE) == [
        "grave   more threads than CPUs [threads]",
        "  seen    8 threads",
        "  gain    unknown",
        "  try     fewer",
    ]


def test_what_is_new_is_told_with_the_change():
    assert "  since   3 copies more" in shown(replace(FINDING, since_baseline="3 copies more"))


def test_no_finding_is_told_as_that():
    assert shown() == ["findings   none"]
    assert render_findings_markdown(()) == ""


def test_names_of_a_program_cannot_move_the_terminal():
    assert shown(replace(BARE, title="a\x1b[31mb"))[0] == "grave   a [31mb [threads]"


def test_markdown_lists_them_with_the_command_as_code():
    assert render_findings_markdown((FINDING, BARE)).splitlines() == [
        "- **notable**: Adam updates one tensor at a time (6 % of the step) \\[unfused-optimizer\\]",
        "  - seen: 186 calls a step of mul\\_/add\\_",
        "  - seen: they take 6.500 ms",
        "  - where: in Adam (train.py:88)",
        "  - gain: 732 → 717 ms a step (a \\[measurement\\])",
        "  - try: torch.optim.Adam(…, fused=True)",
        "  - run: `perfguard compare --case 'step[a=1,b_c=*]'`",
        "- **grave**: more threads than CPUs \\[threads\\]",
        "  - seen: 8 threads",
        "  - gain: unknown",
        "  - try: fewer",
    ]
