"""What is printed of recorded runs."""

from __future__ import annotations

from perfguard.history.revisions import over_machines
from perfguard.records.facts import fact
from perfguard.records.history import CaseBetweenRevisions, ComparedRevisions, LoggedRun
from perfguard.report.terminal.recorded_runs import render_comparison, render_log, render_run
from tests.changed_values import replace
from tests.printed_text import printed
from tests.recorded_histories import a_gate, a_run


def between(machine_id, log_ratio, lower, upper, **fields):
    made = CaseBetweenRevisions(
        case_id="step.net", machine_id=machine_id, stack_id="torch", before_s=0.1, after_s=0.11, before_runs=3,
        after_runs=3, paired_runs=0, log_ratio=log_ratio, lower=lower, upper=upper,
    )  # fmt: skip
    return replace(made, **fields)


def comparison(*cases):
    return printed(render_comparison(ComparedRevisions(cases=cases, over_machines=over_machines(cases))))


def test_a_case_with_one_run_stands_apart():
    text = comparison(
        between("intel", 0.1, 0.09, 0.11, paired_runs=2), between("intel", 0.2, None, None, case_id="step.other")
    )
    enough, _, few = text.partition("Too little data")
    assert ("step.net" in enough, "2 runs with both" in enough, "step.other" in few) == (True, True, True)
    assert "Over all machines" not in text


def test_machines_that_disagree_are_named():
    text = comparison(between("intel", 0.1, 0.09, 0.11), between("amd", 0.0, -0.01, 0.01))
    assert "slower on intel only" in text
    assert "machines agree" in comparison(between("intel", 0.1, 0.09, 0.11), between("amd", 0.1, 0.09, 0.11))


def test_the_log_tells_what_could_not_be_read_and_what_was_killed():
    broken = replace(a_run(1), problem=fact("recording.no_start"), cases=())
    killed = replace(a_run(2), outcome=None)
    text = printed(render_log([LoggedRun(row=1, run=broken, cases=0), LoggedRun(row=2, run=killed, cases=2)]))
    assert ("no start of a run" in text, "did not end" in text) == (True, True)
    assert "perfguard gate" in printed(render_log([]))


def test_a_run_is_shown_with_what_it_compared():
    text = printed(render_run(a_gate(1, 2, 0.05)))
    assert ("against" in text, "+5.13 %" in text, "regressed" in text) == (True, True, True)
    assert "no case was measured whole" in printed(render_run(replace(a_run(1), cases=())))
