"""What stands beside a verdict: advice on what only the candidate does, and what changed since a stored op counts."""

from __future__ import annotations

import pytest

from perfguard.profile.advice.advise import advise
from perfguard.records.case_names import short_names
from perfguard.records.facts import recorded_text
from perfguard.records.result import RunResult
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Policy
from perfguard.report.comment.markdown import render_markdown
from perfguard.report.culprits import change_text
from perfguard.report.lines import SAME_OP_COUNTS
from perfguard.report.terminal.result import render_result
from tests.compared_cases import verdict_without_times
from tests.finding_evidence import CASE, OPTIMIZER, change, comparison, evidence, op
from tests.printed_text import printed

FINDINGS = advise(evidence(op("mul_", 20, calls=62, module="Adam", phase=OPTIMIZER, shapes="[64]")))
HEADING = "advice on what the candidate does and the baseline does not"
NEW, OLD = change("copies", "copies.of_a_test"), change("reorders", "reorders.of_a_test")


def result(**fields):
    verdict = verdict_without_times(CASE, Outcome.REGRESSED, "5 % slower")
    gate = GateResult(
        outcome=GateOutcome.REGRESSED,
        reasons=(recorded_text("1 case regressed"),),
        verdicts=(verdict,),
        policy=Policy(),
        blocks_total=1,
        blocks_voided=0,
        notes=(),
    )
    return RunResult(
        command="gate",
        run_id="1",
        folder="/project/.perfguard/runs/1",
        suite="quick",
        machine_id="intel-x-1",
        machine="Intel Xeon",
        cpus=(1,),
        arms={},
        gate=gate,
        exit_code=1,
        verdict="regressed",
        reasons=(recorded_text("1 case regressed"),),
        duration_s=1.0,
        **fields,
    )


def terminal_text(shown):
    return printed(render_result(shown, width=200))


def test_advice_stands_below_the_ops_that_it_is_about():
    lines = terminal_text(result(attributions=(comparison(),), findings={CASE: FINDINGS})).splitlines()
    places = [lines.index(f"ops of {short_names([CASE])[CASE]}"), lines.index(HEADING)]
    (heading,) = [number for number, line in enumerate(lines) if "[unfused-optimizer]" in line]
    assert [*places, heading] == sorted([*places, heading])
    for label in ("seen", "where", "gain", "try", "then"):
        assert any(line.startswith(f"  {label}") for line in lines[heading:]), label


def test_without_advice_nothing_is_said_of_it():
    assert HEADING not in terminal_text(result(attributions=(comparison(),)))
    assert "Advice" not in render_markdown(result(attributions=(comparison(),)))


def test_markdown_names_the_case_and_gives_the_command_as_code():
    text = render_markdown(result(attributions=(comparison(),), findings={CASE: FINDINGS}))
    name = short_names([CASE])[CASE]
    assert f"Advice on what the candidate does in `{name}` and the baseline does not:\n\n- **notable**" in text
    assert "  - then: `perfguard compare" in text


@pytest.mark.parametrize("render", [terminal_text, render_markdown])
def test_what_a_stored_op_counts_tells_beyond_the_change_itself_is_told_apart(render):
    text = render(result(op_count_changes={CASE: (NEW,)}, stored_op_count_changes={CASE: (NEW, OLD)})).replace("\\", "")
    assert text.count(change_text(NEW)) == text.count(change_text(OLD)) == 1


@pytest.mark.parametrize("render", [terminal_text, render_markdown])
def test_a_case_that_executes_the_same_says_so_where_its_times_do_not_settle_it(render):
    assert SAME_OP_COUNTS in render(result(op_count_changes={CASE: ()}))
    assert SAME_OP_COUNTS not in render(result())


def test_of_many_changes_since_a_stored_op_counts_three_are_told():
    changes = tuple(change("calls", f"op.number_{number}") for number in range(5))
    text = terminal_text(result(stored_op_count_changes={CASE: changes}))
    assert [change_text(one) in text for one in changes] == [True] * 3 + [False] * 2
