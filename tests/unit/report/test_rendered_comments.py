"""Comments on pull requests: against golden files, and within their budget. `PERFGUARD_UPDATE_GOLDEN=1` writes anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from perfguard.records.facts import recorded_text
from perfguard.records.spec import Gating
from perfguard.records.verdict import Confirmation, GateOutcome, Outcome
from perfguard.report.comment.cases import BAR_WIDTH, Detail, axis_labels, interval_bar, reach_of, text_of
from perfguard.report.comment.comment import COMMENT_CHARACTERS, SHEDDING, CommentContext, render_comment
from perfguard.report.culprits import culprit_lines
from tests.changed_values import replace
from tests.commented_results import (
    BASE,
    HEAD,
    INCONCLUSIVE,
    MERGE,
    PASSED,
    REGRESSED,
    SLOWER,
    gate_result,
    judged,
    many_cases,
    other_environment,
    regressed,
)
from tests.compared_cases import compared
from tests.example_attribution import attribution_of
from tests.hostile_texts import assert_harmless

GOLDEN = Path(__file__).parent / "golden"
URL = "https://github.example/octo/net/actions/runs/4711"
CONTEXT = CommentContext(
    marker="gate",
    head_sha=HEAD,
    reproduce=f"perfguard compare --baseline git:{BASE} --candidate git:{MERGE} --suite pr",
    report_url=URL,
    accept_label="perf-accepted",
)
COMMENTS = {
    "regressed": (REGRESSED, CONTEXT),
    "pass": (PASSED, CONTEXT),
    "inconclusive": (INCONCLUSIVE, CONTEXT),
    "environment": (other_environment(), CONTEXT),
    "fork": (REGRESSED, replace(CONTEXT, from_fork=True)),
    "accepted": (REGRESSED, replace(CONTEXT, accepted_by="perf-accepted")),
    "many": (many_cases(2000), CONTEXT),
}


@pytest.mark.parametrize("name", COMMENTS)
def test_a_comment_reads_as_its_golden_file(name):
    text = render_comment(*COMMENTS[name])
    path = GOLDEN / f"comment_{name}.md"
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMENTS)
def test_a_comment_is_markdown_of_ours_alone(name):
    assert_harmless(render_comment(*COMMENTS[name]), links=(URL,))


def test_the_verdict_and_the_culprit_are_in_the_first_lines():
    first = render_comment(REGRESSED, CONTEXT).splitlines()[:8]
    (culprit,) = culprit_lines(REGRESSED.attributions[0])
    assert first[2] == "### 🔺 perfguard: regressed at f00dbeeff00d"
    assert "1 of 6 cases regressed" in first[4]
    assert first[6:8] == [f"**{text_of(culprit.headline)}**", text_of(culprit.details)]


@pytest.mark.parametrize("number", [2000, 5000])
def test_a_comment_on_very_many_cases_has_room(number):
    text = render_comment(many_cases(number), CONTEXT)
    assert len(text) <= COMMENT_CHARACTERS
    assert text_of(culprit_lines(many_cases(50).attributions[0])[0].headline) in text
    assert "# measure it again" in text
    assert text.count("```") % 2 == 0


def test_detail_is_shed_in_the_order_that_is_stated():
    """With less and less room, each kind of detail goes in its turn and none comes back."""
    result = replace(
        many_cases(300),
        notes=tuple(recorded_text(f"note {index}") for index in range(30)),
        findings={SLOWER: REGRESSED.findings[SLOWER]},
    )
    signs = (
        ("kernel.add[id=0,", "unchanged"),
        ("Advice on", "advice"),
        ("faults regressed", "signals"),
        ("2 extra reorders", "changes"),
        ("What else there is to know", "notes"),
    )
    lengths = [len(render_comment(result, CONTEXT, limit=limit)) for limit in range(40_000, 2_000, -2_500)]
    assert lengths == sorted(lengths, reverse=True)
    gone: list[str] = []
    for limit in [len(render_comment(result, CONTEXT)), *range(40_000, 3_000, -600)]:
        text = render_comment(result, CONTEXT, limit=limit)
        gone += [name for sign, name in signs if sign not in text and name not in gone]
    assert gone == [name for _, name in signs]
    assert [next(iter(shed)) for shed in SHEDDING[: len(signs)]] == gone
    assert all(name in Detail.__slots__ for shed in SHEDDING for name in shed)


@pytest.mark.parametrize("limit", [500, 1_000, 3_000])
def test_even_a_tiny_budget_is_kept_and_begins_with_the_verdict(limit):
    text = render_comment(many_cases(500), CONTEXT, limit=limit)
    assert len(text) <= limit
    assert "### 🔺 perfguard: regressed" in text
    assert text.endswith("…and more than a comment has room for.\n")


def test_the_worst_gating_case_comes_first_and_its_culprit_heads_the_comment():
    verdicts = [regressed("a", 0.02), regressed("b", 0.30), regressed("c", 0.05)]
    found = attribution_of("b")
    result = gate_result(GateOutcome.REGRESSED, "3 of 3 cases regressed", *verdicts, attributions=(found,))
    text = render_comment(result, CONTEXT)
    (culprit,) = culprit_lines(found)
    assert f"**{text_of(culprit.headline)}** (`b`)\n{text_of(culprit.details)}" in text
    assert text.index("  b\n") < text.index("  c\n") < text.index("  a\n")
    assert text.count(text_of(culprit.headline)) == 1


def test_the_gate_is_as_sure_as_its_least_sure_regression():
    def how_sure(*confirmed):
        verdicts = [
            regressed(name, confirmation=Confirmation(confirmed=is_shown, estimate=None, p_slower=0.1))
            for name, is_shown in zip("ab", confirmed, strict=True)
        ]
        text = render_comment(gate_result(GateOutcome.REGRESSED, "2 of 2 cases regressed", *verdicts), CONTEXT)
        (line,) = (line for line in text.splitlines() if line.startswith("How sure:"))
        return line

    assert how_sure(True, False) == how_sure(False, True) == how_sure(False, False)
    assert how_sure(True, True) != how_sure(False, False)


def test_a_calibrated_gate_quotes_its_error_rate():
    (line,) = (line for line in render_comment(PASSED, CONTEXT).splitlines() if "How sure" in line)
    assert "40" in line
    assert "7.20 %" in line


def test_identical_environments_are_one_line_whatever_the_venv_is_called():
    candidate = replace(PASSED.arms["candidate"], interpreter="/another/venv/bin/python")
    text = render_comment(replace(PASSED, arms={**PASSED.arms, "candidate": candidate}), CONTEXT)
    assert "Environment: the same in both arms (torch 2.13.0, Python 3.11.7)" in text


def test_a_result_without_a_comparison_says_so():
    text = render_comment(
        replace(PASSED, gate=None, arms={}, verdict="interrupted", reasons=(recorded_text("stopped"),)), CONTEXT
    )
    assert "How sure: nothing was compared." in text
    assert "perfguard allow" not in text


def test_a_case_that_cannot_be_typed_is_in_no_command():
    odd = regressed("step[x='`$(id)`']")
    text = render_comment(gate_result(GateOutcome.REGRESSED, "regressed", odd), CONTEXT)
    assert "perfguard allow" not in text
    assert "--ops" not in text


def test_the_limit_of_an_allowance_covers_the_interval():
    verdict = regressed("x", 0.062)
    upper = verdict.comparison.estimate.interval.upper
    text = render_comment(gate_result(GateOutcome.REGRESSED, "regressed", verdict), CONTEXT)
    assert "perfguard allow 'x' --max 7% --until 30d" in text
    assert upper < 0.07


def test_each_case_that_fails_the_gate_can_be_accepted():
    advisory = replace(regressed("c", 0.04), gating=Gating.ADVISORY)
    text = render_comment(
        gate_result(GateOutcome.REGRESSED, "regressed", regressed("a", 0.30), regressed("b", 0.02), advisory), CONTEXT
    )
    assert re.findall(r"perfguard allow '(\w)' --max", text) == ["a", "b"]
    many = [regressed(f"kernel.k{number}", 0.1) for number in range(10)]
    text = render_comment(gate_result(GateOutcome.REGRESSED, "regressed", *many), CONTEXT)
    assert text.count("perfguard allow 'kernel.k") == 8
    assert "# and 2 cases more; a glob covers several" in text


def test_bars_stand_below_each_other():
    lines = render_comment(many_cases(400), CONTEXT).splitlines()
    block = lines[lines.index("```text") + 1 :]
    rows = block[: block.index("```")]
    zero = rows[0].index(" 0 ") + 1
    assert len(rows) == 9
    assert all(row[zero] in "│█0─" for row in rows)
    assert len({row.index("kernel") for row in rows[1:]}) == 1


@pytest.mark.parametrize(
    ("effect", "expected"),
    [(0.0, "············█············"), (0.5, "············│···········█"), (-0.5, "█···········│············")],
)
def test_a_bar_shows_zero_and_the_effect(effect, expected):
    estimate = compared("x", effect, sd=0.0001).estimate
    assert interval_bar(estimate, reach_of([estimate])) == expected


def test_a_bar_shows_the_interval_around_the_effect():
    estimate = compared("x", 0.0, error=0.01, blocks=100).estimate
    assert interval_bar(estimate, 0.04) == "······──────█──────······"


def test_the_axis_is_as_wide_as_its_bars():
    for reach in (0.02, 0.1, 1.0, 4.6):
        assert len(axis_labels(reach)) == BAR_WIDTH
        assert axis_labels(reach)[BAR_WIDTH // 2] == "0"


def test_an_allowed_case_is_told_with_its_reason():
    verdict = judged("x", Outcome.ALLOWED, 0.03, "allowed up to 5 %")
    text = render_comment(gate_result(GateOutcome.PASS, "allowed", verdict), CONTEXT)
    assert "#### Accepted slowdowns: 1 case" in text
    assert "- `x`: allowed up to 5 %" in text


def test_the_blame_of_a_case_is_told_where_it_is_not_in_the_headline():
    verdicts, found = [regressed("a", 0.30), regressed("b", 0.02)], attribution_of("b")
    result = gate_result(GateOutcome.REGRESSED, "2 of 2 cases regressed", *verdicts, attributions=(found,))
    (culprit,) = culprit_lines(found)
    lines = [line for line in render_comment(result, CONTEXT).splitlines() if text_of(culprit.headline) in line]
    assert len(lines) == 1
    assert text_of(culprit.details) in lines[0]


def test_what_no_allowance_covers_is_not_offered_one():
    text = render_comment(gate_result(GateOutcome.REGRESSED, "regressed", regressed("x", 1.4)), CONTEXT)
    assert "measure it again" in text
    assert "perfguard allow" not in text


def test_same_code_that_was_not_measured_offers_nothing_to_measure_again():
    gate = replace(PASSED.gate, identical=True, blocks_total=0)
    arms = {role: replace(arm, python=None, torch=None, stack_id=None) for role, arm in PASSED.arms.items()}
    text = render_comment(replace(PASSED, gate=gate, arms=arms), replace(CONTEXT, reproduce="perfguard compare"))
    assert "perfguard compare" not in text
    assert "false-alarm rate" not in text
