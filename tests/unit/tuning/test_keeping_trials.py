"""Tuning a simulated target: the budget, and what the journal keeps over kills at any moment."""

from __future__ import annotations

import os

import pytest

from perfguard.errors import InterruptedRunError, StoreError
from perfguard.records.tuning import Purpose, ToggleHint, Trial, TrialOutcome, TrialVerdict, TriedTrial, TuningOutcome
from perfguard.tuning.journal import newest_tuning, open_journal
from perfguard.tuning.tune import FINAL_SHARE, tune
from tests.simulated_tuning import SimulatedTarget, product_of, setting, toggle

SCOPE = {"case": "step.simulated", "source": "abc"}
TOGGLES = [toggle("a"), toggle("b", "one", "two"), toggle("c"), toggle("d")]
COST = product_of(a=0.8, b_one=0.9, b_two=0.7, c=1.1, d=1.0)
BEST = setting(a="on", b="two")


class KilledError(BaseException):
    """The process ended here."""


def target_of(**fields):
    return SimulatedTarget(**{"toggles": TOGGLES, "cost": COST, **fields})


def tuned(folder, target, budget_s=1000.0, **fields):
    return tune(target, open_journal(folder, SCOPE), budget_s, clock=lambda: target.now_s, **fields)


def count_of_trials(tmp_path):
    target = target_of()
    tuned(tmp_path / "count", target)
    return len(target.asked)


def test_the_same_command_measures_nothing_twice(tmp_path):
    first, again = target_of(), target_of()
    found, repeated = tuned(tmp_path, first), tuned(tmp_path, again)
    assert (found.recipe, found.outcome, found.exit_code) == (BEST, TuningOutcome.DONE, 0)
    assert again.asked == []
    assert (first.profiled, again.profiled) == (1, 0)
    assert repeated.recipe == found.recipe
    assert [tried.outcome for tried in repeated.trials] == [tried.outcome for tried in found.trials]
    assert all(tried.is_reused for tried in repeated.trials)


def test_killed_at_any_trial_it_goes_on_with_that_one(tmp_path):
    whole = target_of()
    tuned(tmp_path / "whole", whole)
    for killed_at in range(len(whole.asked)):
        folder = tmp_path / str(killed_at)
        target = target_of()
        measure = target.measure

        def killed(trial, budget_s, target=target, measure=measure, killed_at=killed_at):
            if len(target.asked) == killed_at:
                raise KilledError
            return measure(trial, budget_s)

        target.measure = killed
        with pytest.raises(KilledError):
            tuned(folder, target)
        rest = target_of()
        found = tuned(folder, rest)
        assert [*target.asked, *rest.asked] == whole.asked
        assert found.recipe == BEST


@pytest.mark.parametrize(
    ("scope", "name"),
    [({"cases": ["step.simulated"]}, "step.simulated"), ({"cases": [], "script": "train.py"}, "train.py")],
)
def test_the_newest_tuning_is_read_while_it_is_written(tmp_path, scope, name):
    assert newest_tuning(tmp_path) is None
    target = target_of()
    found = tune(target, open_journal(tmp_path, scope), 1000.0, clock=lambda: target.now_s)
    other = open_journal(tmp_path, {"cases": ["step.older"]})
    os.utime(other.path, (1.0, 1.0))
    (path,) = [path for path in tmp_path.iterdir() if path != other.path]
    os.utime(path, (2.0, 2.0))
    path.write_bytes(path.read_bytes() + b'{"trial":{"tri')
    os.utime(path, (2.0, 2.0))
    now = newest_tuning(tmp_path)
    assert (now.target, now.changed_at, now.hints) == (name, 2.0, found.hints)
    assert [tried.trial for tried in now.trials] == [tried.trial for tried in found.trials]


@pytest.mark.parametrize("head", ["[]", "{}", '{"scope": {"cases": []}}', "no"])
def test_a_journal_without_a_target_is_corrupt(tmp_path, head):
    (tmp_path / "a.jsonl").write_text(head + "\n")
    with pytest.raises(StoreError, match="a.jsonl:1 is corrupt"):
        newest_tuning(tmp_path)


def test_a_line_that_was_cut_off_is_dropped_and_the_rest_kept(tmp_path):
    tuned(tmp_path, target_of())
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    again = target_of()
    tuned(tmp_path, again)
    assert [trial.purpose for trial in again.asked] == [Purpose.FINAL]
    assert path.read_bytes().count(b"\n") == whole.count(b"\n")


def test_an_interruption_is_a_result_with_what_was_measured(tmp_path):
    target = target_of()
    measure = target.measure

    def interrupted(trial, budget_s):
        if len(target.asked) == 2:
            raise InterruptedRunError("stop")
        return measure(trial, budget_s)

    target.measure = interrupted
    found = tuned(tmp_path, target)
    assert (found.outcome, found.exit_code, len(found.trials)) == (TuningOutcome.INTERRUPTED, 130, 2)
    assert found.recipe == ()


def test_a_recipe_whose_final_trial_was_interrupted_is_still_named(tmp_path):
    target = target_of()
    measure = target.measure

    def interrupted(trial, budget_s):
        if trial.purpose is Purpose.FINAL:
            raise InterruptedRunError("stop")
        return measure(trial, budget_s)

    target.measure = interrupted
    found = tuned(tmp_path, target)
    assert (found.outcome, found.final) == (TuningOutcome.INTERRUPTED, None)
    assert found.recipe == tuned(tmp_path, target_of()).recipe != ()


def test_other_code_or_another_machine_is_another_journal(tmp_path):
    tuned(tmp_path, target_of())
    other = target_of()
    tune(other, open_journal(tmp_path, {**SCOPE, "source": "def"}), 1000.0, clock=lambda: other.now_s)
    assert other.asked


def test_fresh_forgets(tmp_path):
    tuned(tmp_path, target_of())
    assert open_journal(tmp_path, SCOPE).trials
    assert not open_journal(tmp_path, SCOPE, is_fresh=True).trials
    assert not open_journal(tmp_path, SCOPE).trials


@pytest.mark.parametrize("line", ['{"trial": {"trial": 3}}', "[]", "3", "{}", "not JSON", '{"hints": 3}'])
def test_something_else_in_the_file_is_told_with_its_line(tmp_path, line):
    tuned(tmp_path, target_of())
    (path,) = tmp_path.iterdir()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1], f"{line}\n"]))
    with pytest.raises(StoreError, match=f"{path.name}:3"):
        open_journal(tmp_path, SCOPE)


@pytest.mark.parametrize("budget_s", [2.0, 4.0, 8.0, 12.0])
def test_the_budget_holds_and_the_recipe_is_compared_within_it(tmp_path, budget_s):
    names = "abcdefghij"
    cost = product_of(**dict.fromkeys(names, 0.8))
    target = target_of(toggles=[toggle(name) for name in names], cost=cost, trial_s=0.5)
    found = tuned(tmp_path, target, budget_s)
    assert target.asked[-1].purpose is Purpose.FINAL
    assert found.final is not None
    assert target.now_s <= budget_s + 0.5
    assert found.outcome is (TuningOutcome.UNFINISHED if budget_s < 10 else TuningOutcome.DONE)
    assert found.exit_code == (4 if budget_s < 10 else 0)


def test_after_the_budget_the_same_command_goes_on(tmp_path):
    total = count_of_trials(tmp_path)
    asked = []
    for _ in range(total):
        target = target_of()
        found = tuned(tmp_path / "parts", target, budget_s=3.0)
        asked += [trial for trial in target.asked if trial.purpose is not Purpose.FINAL]
    assert found.recipe == BEST
    assert len(set(map(repr, asked))) == len(asked)


def test_a_trial_that_time_cut_short_is_measured_again_only_with_much_more_of_it(tmp_path):
    journal = open_journal(tmp_path, SCOPE)
    trial = Trial(purpose=Purpose.ADD, before=(), after=setting(a="on"))
    outcome = TrialOutcome(verdict=TrialVerdict.OPEN, is_cut_short=True)
    journal.keep(TriedTrial(trial=trial, outcome=outcome, budget_s=10.0))
    again = open_journal(tmp_path, SCOPE)
    assert again.known(trial, 15.0) is not None
    assert again.known(trial, 20.0) is None


def test_what_an_unstable_host_left_open_is_not_kept(tmp_path):
    target = target_of(toggles=[toggle("a")])
    target.measure = lambda trial, budget_s: TrialOutcome(verdict=TrialVerdict.OPEN, is_kept=False)
    found = tuned(tmp_path, target)
    assert (found.outcome, len(found.trials)) == (TuningOutcome.UNFINISHED, 1)
    assert not open_journal(tmp_path, SCOPE).trials


def test_one_trial_gets_a_part_of_the_budget_and_the_final_one_what_is_left(tmp_path):
    offered = {}
    target = target_of(toggles=[toggle("a")])
    measure = target.measure

    def recorded(trial, budget_s):
        offered[trial.purpose] = budget_s
        return measure(trial, budget_s)

    target.measure = recorded
    tuned(tmp_path, target, budget_s=100.0)
    assert offered == {Purpose.ADD: (1 - FINAL_SHARE) / 2 * 100.0, Purpose.FINAL: 99.0}


def test_a_recipe_that_computes_something_else_as_a_whole_is_refused(tmp_path):
    target = target_of(toggles=[toggle("a")])

    def measured(trial, budget_s):
        verdict = TrialVerdict.DIFFERENT if trial.purpose is Purpose.FINAL else TrialVerdict.FASTER
        return TrialOutcome(verdict=verdict, log_ratio=-0.2)

    target.measure = measured
    found = tuned(tmp_path, target)
    assert (found.outcome, found.exit_code) == (TuningOutcome.REFUSED, 4)


@pytest.mark.parametrize(
    ("verdict", "outcome"), [(TrialVerdict.SLOWER, TuningOutcome.DONE), (TrialVerdict.FAILED, TuningOutcome.UNFINISHED)]
)
def test_a_recipe_is_not_done_before_its_final_trial_could_be_measured(tmp_path, verdict, outcome):
    target = target_of(toggles=[toggle("a")])
    target.measure = lambda trial, budget_s: TrialOutcome(
        verdict=verdict if trial.purpose is Purpose.FINAL else TrialVerdict.FASTER, log_ratio=-0.2
    )
    found = tuned(tmp_path, target)
    assert (found.outcome, found.recipe) == (outcome, setting(a="on"))


def test_findings_are_kept_and_decide_the_order(tmp_path):
    optimizer, dtype = toggle("optimizer", "foreach", "fused"), toggle("dtype", "bf16")
    hints = [ToggleHint(code="advice.unfused_optimizer", share=0.3)]
    target = target_of(toggles=[dtype, optimizer], hints=hints)
    found = tuned(tmp_path, target)
    assert [each.name for each in found.toggles] == ["optimizer", "dtype"]
    assert dict(target.asked[0].after) == {"optimizer": "fused"}
    assert open_journal(tmp_path, SCOPE).hints == tuple(hints)


def test_every_trial_is_shown_at_once(tmp_path):
    shown = []
    found = tuned(tmp_path, target_of(), on_trial=shown.append)
    assert tuple(shown) == found.trials


def test_a_trial_without_time_for_an_answer_is_not_the_answer_that_nothing_helps(tmp_path):
    target = target_of(toggles=[toggle("a")])
    target.measure = lambda trial, budget_s: TrialOutcome(verdict=TrialVerdict.OPEN, is_cut_short=True)
    found = tuned(tmp_path, target)
    assert (found.recipe, found.outcome, found.exit_code) == ((), TuningOutcome.UNFINISHED, 4)


def test_where_not_one_trial_can_be_measured_that_is_the_result(tmp_path):
    found = tuned(tmp_path, target_of(broken=lambda _: True))
    assert (found.outcome, found.exit_code, found.recipe) == (TuningOutcome.FAILED, 3, ())
    assert {tried.outcome.verdict for tried in found.trials} == {TrialVerdict.FAILED}
