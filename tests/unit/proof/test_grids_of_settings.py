"""What `tune_against_grid` compares with: all combinations, and the best of them over the rounds."""

from __future__ import annotations

from perfguard.records.tuning import TrialOutcome, TrialVerdict
from tests.proof.tune_against_grid import best_cell, combinations, sampled
from tests.simulated_tuning import setting, toggle


def outcome(log_ratio, verdict=TrialVerdict.FASTER):
    return TrialOutcome(verdict=verdict, log_ratio=log_ratio)


def test_a_grid_holds_every_combination_but_the_reference():
    cells = list(combinations([toggle("b", "one", "two"), toggle("a")]))
    assert len(cells) == len(set(cells)) == 5
    assert setting(a="on", b="two") in cells
    assert () not in cells


def test_the_best_cell_is_that_of_all_rounds_and_computes_the_same():
    fast, lucky, wrong = setting(a="on"), setting(b="on"), setting(c="on")
    rounds = [
        {fast: outcome(-0.20), lucky: outcome(-0.30), wrong: outcome(-0.90, TrialVerdict.DIFFERENT)},
        {fast: outcome(-0.22), lucky: outcome(-0.01, TrialVerdict.OPEN), wrong: outcome(-0.90)},
    ]
    assert best_cell(rounds) == fast
    assert best_cell([{fast: outcome(0.1, TrialVerdict.SLOWER)}]) == ()
    assert best_cell([{fast: TrialOutcome(verdict=TrialVerdict.FAILED)}]) == ()


def test_a_sample_holds_the_recipe_and_all_that_differ_from_it_in_one_toggle():
    toggles = [toggle("a"), toggle("b", "one", "two"), *(toggle(name) for name in "cdef")]
    grid, recipe = list(combinations(toggles)), setting(a="on", b="one")
    cells = sampled(grid, toggles, recipe, 5)
    near = [recipe, setting(b="one"), setting(a="on"), setting(a="on", b="two"), setting(a="on", b="one", c="on")]
    assert set(near) <= set(cells)
    assert 8 <= len(cells) <= 13
    assert len(set(cells)) == len(cells)
    assert set(cells) <= set(grid)
