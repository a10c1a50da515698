"""A bisection as text and Markdown."""

from __future__ import annotations

import pytest

from perfguard.records.bisection import (
    Answer,
    Bisection,
    BisectionOutcome,
    BisectionStep,
    CaseEffect,
    Commit,
    MeasuredTree,
)
from perfguard.records.facts import recorded_text
from perfguard.report.terminal.bisection import finding_of, render_bisection, render_bisection_markdown
from tests.changed_values import replace
from tests.example_attribution import attribution_of
from tests.printed_text import printed


def commit(number, subject=None):
    return Commit(
        id=f"{number:040x}",
        tree=f"{number:040x}",
        parents=(),
        author="Ada",
        authored_at="2026-01-02T03:04:05+01:00",
        subject=subject or f"change {number}",
    )


def effect(log_ratio, outcome="regressed"):
    return CaseEffect(
        case_id="step.bert[batch=4]",
        outcome=outcome,
        log_ratio=log_ratio,
        lower=log_ratio - 0.01,
        upper=log_ratio + 0.01,
        blocks=9,
        reasons=(recorded_text("a sentence"),),
    )


def step(number, answer, *, log_ratio=0.0, outcome="regressed", reused=False, subject=None, gate="pass"):
    return BisectionStep(
        commit=commit(number, subject),
        measured=MeasuredTree(
            tree="t",
            answer=answer,
            gate=gate,
            reasons=(recorded_text("it does not import [red]"),),
            cases=(effect(log_ratio, outcome),),
            duration_s=61.0,
        ),
        is_reused=reused,
    )


@pytest.fixture
def found():
    bad = step(2, Answer.BAD, log_ratio=0.05, subject="faster *loss* | `x` \x1b[2J[bold]")
    return Bisection(
        outcome=BisectionOutcome.FOUND,
        exit_code=0,
        cases=("step.bert[batch=4]",),
        good=commit(0),
        bad=commit(9),
        commits=9,
        total=bad.measured,
        steps=(step(4, Answer.SKIP, outcome="unchanged"), bad, step(1, Answer.GOOD, reused=True)),
        culprit=bad.commit,
        effects=(effect(0.05),),
        unexplained=(recorded_text("half of it is missing"),),
        suspects=(bad.commit,),
        gates=3,
        log=".perfguard/bisect/k.json",
    )


@pytest.fixture
def undecided(found):
    suspects = tuple(commit(number) for number in range(30))
    return replace(
        found, outcome=BisectionOutcome.UNDECIDED, culprit=None, effects=(), unexplained=(), suspects=suspects
    )


def text_of(found):
    return printed(render_bisection(found, width=200))


def test_steps_come_in_order_with_what_was_seen_and_the_commit_comes_last(found):
    lines = text_of(found).splitlines()
    skip, bad, good = (
        next(i for i, line in enumerate(lines) if line.startswith(a)) for a in ("skip  0", "bad   0", "good  0")
    )
    assert skip < bad < good
    assert "(1 min 01 s): it does not import [red]" in lines[skip]
    assert "+5.13 % [+4.08 %, +6.18 %]" in lines[bad]
    assert "(known)" in lines[good]
    ending = lines[next(i for i, line in enumerate(lines) if line.startswith("found: ")) :]
    assert f"    commit   {found.culprit.id}" in ending
    assert "    date     2026-01-02T03:04:05+01:00" in ending
    assert ending[-1] == "    note     half of it is missing"


def test_the_commit_comes_with_the_op_and_the_line_that_cause_it(found):
    cause = attribution_of("step.bert[batch=4]").culprits[0].fact
    cause = replace(cause, subject=replace(cause.subject, place="train/gpt.py:22"))
    told = text_of(replace(found, effects=(replace(found.effects[0], cause=cause),))).splitlines()
    behind = next(i for i, line in enumerate(told) if line.startswith("    effect")) + 1
    assert told[behind].startswith("    cause    ")
    assert told[behind].endswith("(train/gpt.py:22)")


def test_a_skipped_commit_tells_what_is_unclear_and_on_an_unstable_host_only_that():
    unclear = step(4, Answer.SKIP, outcome="inconclusive", gate="inconclusive")
    assert finding_of(unclear.measured, {}) == "step.bert[batch=4] inconclusive: a sentence"
    unstable = step(4, Answer.SKIP, outcome="inconclusive", gate="host-unstable")
    assert finding_of(unstable.measured, {}) == "it does not import [red]"


@pytest.mark.parametrize("render", [text_of, render_bisection_markdown])
def test_a_subject_cannot_move_the_terminal_or_break_the_table(found, render):
    text = render(found)
    assert "\x1b" not in text
    assert "change" in text


def test_markdown_has_an_item_for_each_step_whatever_a_subject_holds(found):
    lines = render_bisection_markdown(found).splitlines()
    items = [line for line in lines if line.startswith(("- good 0", "- bad 0", "- skip 0")) and "(" in line]
    assert len(items) == 3
    assert r"faster \*loss\* \| 'x'" in items[1]


def test_a_long_list_of_suspects_keeps_both_ends(undecided):
    text = text_of(undecided)
    shown = text[text.index("the first bad commit is one of:") :]
    assert "change 0\n" in shown
    assert "change 29" in shown
    assert "… 10 more" in shown
    assert "change 15\n" not in shown


def test_markdown_lists_suspects_where_none_is_named(undecided):
    text = render_bisection_markdown(undecided)
    assert text.startswith("## perfguard bisect: undecided")
    assert "- the first bad commit is one of:" in text


def test_what_counts_as_good_is_told_where_something_was_searched(found):
    told = printed(render_bisection(replace(found, good_within_ratio=0.0257), width=200), 200)
    assert "good       is what is shown to be slower by less than 2.57 %, nearer to the good end" in told
    assert "slower by less than 2.57 %" in render_bisection_markdown(replace(found, good_within_ratio=0.0257))
    assert "is what is shown" not in printed(render_bisection(found, width=200), 200)
