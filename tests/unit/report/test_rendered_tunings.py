"""A tuning as text and Markdown, made from a simulated one."""

from __future__ import annotations

import pytest

from perfguard.records.facts import fact
from perfguard.records.script_settings import SCRIPT_SETTINGS
from perfguard.records.tuning import Inapplicable, Purpose, Trial, TrialOutcome, TrialVerdict, TriedTrial, TuningOutcome
from perfguard.report.html.tuning import render_tuning_page
from perfguard.report.terminal.tuning import render_tuning, render_tuning_markdown, result_text, trial_line
from perfguard.tuning.journal import open_journal
from perfguard.tuning.tune import tune
from tests.changed_values import replace
from tests.printed_text import printed
from tests.simulated_tuning import SimulatedTarget, product_of, toggle


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    monkeypatch.setattr("perfguard.tuning.tune.expected_gains", lambda _: {})  # what was measured decides the order

    def made(budget_s=100.0, **fields):
        target = SimulatedTarget(
            toggles=[toggle("optimizer", "foreach", "fused"), toggle("dtype", "bf16"), toggle("norm", "folded")],
            cost=product_of(optimizer_foreach=0.9, optimizer_fused=0.8, dtype=0.5, norm=1.1),
            refused=lambda chosen: "dtype" in chosen,
            inapplicable=[Inapplicable(name="threads", reason=fact("tune.one_cpu"))],
            **fields,
        )
        return tune(target, open_journal(tmp_path, {}), budget_s, clock=lambda: target.now_s)

    return made


def lines_of(found, *, width=200):
    return printed(render_tuning(found), width=width).splitlines()


def row_of(lines, name):
    return next(line.split() for line in lines if line.split()[:1] == [name])


def test_the_table_says_of_each_trial_what_became_of_it(tuned):
    lines = lines_of(tuned())
    assert row_of(lines, "optimizer=foreach")[-3:] == ["faster,", "later", "dropped"]
    assert row_of(lines, "optimizer=fused")[-2:] == ["faster,", "kept"]
    assert row_of(lines, "dtype=bf16")[-2:] == ["different", "results"]
    assert row_of(lines, "norm=folded")[-1] == "slower"


def test_what_to_copy_is_printed(tuned):
    found = tuned()
    text = "\n".join(lines_of(found))
    for part in (found.candidate, found.tuned, found.command, "off → fused"):
        assert part in text
        assert part in render_tuning_markdown(found)
    runs = [tried.outcome.run_id for tried in found.trials]
    assert f"perfguard report {' '.join(runs)} -o trials.html" in text


def test_the_page_has_every_trial_with_its_interval_and_what_to_copy(tuned):
    found = tuned()
    page = render_tuning_page(found)
    assert page.count('class="picture"') == len(found.trials)
    assert page.count('class="point') == len(found.trials)
    for text in (found.command, "off → fused", "all of them: optimizer=fused", "refused", "threads"):
        assert text in page
    assert f"tune: {found.outcome.value}" in page


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_tuning_without_answers_has_a_page_too(tuned, interrupted):
    found = tuned(broken=bool) if not interrupted else replace(tuned(), trials=(), recipe=())
    page = render_tuning_page(found)
    assert "What to copy" not in page
    assert page.count('class="point') == 0


def test_a_refused_recipe_is_not_there_to_copy(tuned):
    page = render_tuning_page(replace(tuned(), outcome=TuningOutcome.REFUSED))
    assert "What to copy" not in page
    assert "tune: refused" in page


def test_what_is_not_tried_is_named(tuned):
    found = tuned()
    assert any(line.split()[:3] == ["not", "tried", "threads:"] for line in lines_of(found))
    assert "- not tried: `threads`" in render_tuning_markdown(found)


def test_a_narrow_terminal_gets_whole_rows(tuned):
    assert max(map(len, lines_of(tuned(), width=80))) <= 80


def test_every_end_has_its_word(tuned, tmp_path):
    found = tuned(budget_s=3.0)
    assert found.outcome is TuningOutcome.UNFINISHED
    assert any(line.startswith("unfinished: ") for line in lines_of(found))
    assert render_tuning_markdown(found).startswith("## perfguard tune: unfinished")


def test_a_line_for_each_trial_says_where_its_answer_is_from(tuned):
    assert "known" not in trial_line(tuned().trials[0])
    assert "known" in trial_line(tuned().trials[0])


@pytest.fixture
def tuned_script(tuned):
    return tuned(name="train.py", benchmark="", environment={"LD_PRELOAD": "/a b/libjemalloc.so.2"})


def test_what_keeps_the_settings_in_a_script_is_printed(tuned_script):
    assert tuned_script.is_script
    for text in ("\n".join(lines_of(tuned_script)), render_tuning_markdown(tuned_script)):
        assert "fused=True" in text
        assert "LD_PRELOAD='/a b/libjemalloc.so.2'" in text
        assert tuned_script.command in text
        assert "perfguard report" not in text
    assert any(line.split() == ["script", "train.py"] for line in lines_of(tuned_script))


def test_a_setting_that_is_ignored_does_not_apply(tuned):
    found = tuned(ignored=lambda chosen: "norm" in chosen)
    lines = lines_of(found)
    assert row_of(lines, "norm=folded")[-3:] == ["does", "not", "apply"]
    assert any(line.split()[:2] == ["ignored", "norm=folded:"] for line in lines)
    assert found.outcome is TuningOutcome.DONE


def test_every_setting_of_a_script_has_its_line_of_code(tmp_path):
    target = SimulatedTarget(
        toggles=[toggle(name, *values[name != "optimizer" :]) for name, values in SCRIPT_SETTINGS.items()],
        cost=lambda chosen: 0.5 ** len(chosen),
        benchmark="",
    )
    found = tune(target, open_journal(tmp_path, {}), 100.0, clock=lambda: target.now_s)
    assert len(found.recipe) == len(SCRIPT_SETTINGS)
    assert sum(line.split()[:1] == ["code"] for line in lines_of(found)) == len(SCRIPT_SETTINGS)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (TrialOutcome(verdict=TrialVerdict.OPEN, blocks=7), "no gain shown, removed"),
        (TrialOutcome(verdict=TrialVerdict.OPEN, blocks=1, is_cut_short=True), "not confirmed, kept"),
        (TrialOutcome(verdict=TrialVerdict.OPEN, blocks=5, is_kept=False), "not confirmed, kept"),
        (TrialOutcome(verdict=TrialVerdict.OPEN, blocks=4, lower=-0.4, upper=0.1), "no gain shown, removed"),
        (TrialOutcome(verdict=TrialVerdict.OPEN, blocks=4, lower=-0.4, upper=-0.3), "undecided, removed"),
        (TrialOutcome(verdict=TrialVerdict.SLOWER, blocks=5), "slower, removed"),
    ],
)
def test_what_became_of_a_value_that_had_to_be_confirmed(outcome, text):
    trial = Trial(purpose=Purpose.KEEP, before=(), after=(("dtype", "bf16"),))
    assert result_text(TriedTrial(trial=trial, outcome=outcome, budget_s=1.0), ()) == text


def test_a_trial_whose_time_was_short_is_undecided():
    outcome = TrialOutcome(verdict=TrialVerdict.OPEN, blocks=3, lower=-0.4, upper=0.1, is_cut_short=True)
    trial = Trial(purpose=Purpose.ADD, before=(), after=(("dtype", "bf16"),))
    assert result_text(TriedTrial(trial=trial, outcome=outcome, budget_s=1.0), ()) == "undecided"


def test_a_disturbed_trial_is_open_whatever_its_interval():
    trial = Trial(purpose=Purpose.ADD, before=(), after=(("dtype", "bf16"),))
    outcome = TrialOutcome(verdict=TrialVerdict.OPEN, lower=-0.6, upper=-0.4, blocks=5, is_kept=False)
    assert result_text(TriedTrial(trial=trial, outcome=outcome, budget_s=1.0), ()) == "open, the host was disturbed"


def test_nothing_became_of_a_gain_where_the_search_was_interrupted():
    trial = Trial(purpose=Purpose.ADD, before=(), after=(("dtype", "bf16"),))
    tried = TriedTrial(trial=trial, outcome=TrialOutcome(verdict=TrialVerdict.FASTER, blocks=7), budget_s=1.0)
    assert [result_text(tried, recipe) for recipe in (None, (), trial.after)] == [
        "faster",
        "faster, later dropped",
        "faster, kept",
    ]
