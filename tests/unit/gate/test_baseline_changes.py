"""What two stored baselines differ in: times with the noise of their rounds, and what the steps execute."""

from __future__ import annotations

import pytest

from perfguard.cli.commands.baselines import print_changes
from perfguard.config import load_config
from perfguard.gate.stored.lookup import CountedBaseline, named_baseline
from perfguard.gate.stored.update import changes_between
from perfguard.records.record import StoredBaseline
from perfguard.records.run import Round
from perfguard.report.lines import SAME_OP_COUNTS, change_lines
from tests.changed_values import replace
from tests.op_count_rows import counts, op
from tests.stored_baselines import CASE, NOISE, ROUND, record, recorded_on

ONCE, TWICE = [op("relu")], [op("relu", 2)]


def recorded(seconds, rows=None, *, of=CASE):
    """A baseline of one case with a round for each of these times."""
    rounds = tuple(Round(values_s=(value,), control_s=(0.002,), started_at=1000.0) for value in seconds)
    noise = replace(NOISE, rounds=len(rounds), median_s=sorted(seconds)[len(seconds) // 2])
    baseline = StoredBaseline(info=recorded_on("m"), fingerprint=None, noise={of: noise}, rounds={of: rounds})
    op_counts = {} if rows is None else {of: counts(rows, case_id=of)}
    return CountedBaseline(baseline=baseline, op_counts=op_counts)


def told(before, after, capsys):
    print_changes(changes_between(before, after), as_json=False)
    return capsys.readouterr().out.splitlines()


def test_a_difference_that_the_rounds_do_not_show_is_said_to_be_noise(capsys):
    before, after = recorded([1.0, 1.2, 0.9, 1.1]), recorded([1.3, 1.0, 1.2, 1.1])
    (change,) = changes_between(before, after)
    assert change.interval.lower < 0 < change.interval.upper
    (line,) = told(before, after, capsys)
    assert line.endswith("within the noise of the rounds")


def test_a_difference_that_the_rounds_show_has_its_interval(capsys):
    before, after = recorded([1.0, 1.01, 0.99, 1.0]), recorded([2.0, 2.01, 1.99, 2.0])
    (change,) = changes_between(before, after)
    assert 0 < change.interval.lower < change.interval.upper
    (line,) = told(before, after, capsys)
    assert "+100.0 %" in line
    assert line.endswith("%]")


def test_one_round_has_no_interval(capsys):
    (line,) = told(recorded([1.0]), recorded([2.0, 2.1]), capsys)
    assert line.endswith("too few rounds for an interval")


def test_cases_that_came_or_went_have_no_difference(capsys):
    gone, new = changes_between(recorded([1.0, 1.0], ONCE, of="a"), recorded([1.0, 1.0], ONCE, of="b"))
    assert (gone.after, new.before) == (None, None)
    assert (gone.interval, gone.op_changes, new.interval, new.op_changes) == (None,) * 4


@pytest.mark.parametrize(
    ("before", "after", "codes"), [(ONCE, TWICE, ["calls.added"]), (ONCE, ONCE, [])], ids=["changed", "same"]
)
def test_changed_op_counts_are_told_below_the_times(before, after, codes, capsys):
    sides = recorded([1.0, 1.0], before), recorded([1.0, 1.0], after)
    (change,) = changes_between(*sides)
    assert [one.fact.code for one in change.op_changes] == codes
    assert [line.strip() for line in told(*sides, capsys)[1:]] == (
        change_lines("changed", "", change.op_changes) or [SAME_OP_COUNTS]
    )


@pytest.mark.parametrize("rows", [(None, ONCE), (ONCE, None), (None, None)])
def test_of_what_was_not_counted_nothing_is_told(rows, capsys):
    before, after = (recorded([1.0, 1.0], side) for side in rows)
    assert len(told(before, after, capsys)) == 1


def test_op_counts_of_other_instruction_sets_is_not_compared():
    before, after = recorded([1.0, 1.0], ONCE), recorded([1.0, 1.0], TWICE)
    other = replace(after.op_counts[CASE], isa_class="avx2")
    (change,) = changes_between(before, replace(after, op_counts={CASE: other}))
    assert change.op_changes is None


def test_a_baseline_by_its_folder_comes_with_what_was_counted(tmp_path):
    place = record(tmp_path, "m", counts(ONCE, case_id=CASE))
    found = named_baseline(load_config(tmp_path, {}), str(place.relative_to(tmp_path)), "any-machine")
    assert set(found.op_counts) == {CASE}
    assert found.baseline.rounds[CASE][0].values_s == ROUND.values_s
