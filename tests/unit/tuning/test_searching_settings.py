"""The search alone, on simulated costs: what it asks for, and the recipe that it ends with."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from perfguard.records.tuning import Purpose, ToggleHint, Trial, TrialOutcome, TrialVerdict
from perfguard.tuning.search import SearchResult, by_promise, search
from tests.simulated_tuning import SimulatedTarget, product_of, setting, toggle


def run(target: SimulatedTarget, most: int | None = None) -> SearchResult:
    """Search until the end, or with time for so many trials beside the final one."""
    steering, outcome = search(target.toggles), None
    try:
        trial = next(steering)
        while True:
            has_time = most is None or len(target.asked) < most or trial.purpose is Purpose.FINAL
            outcome = target.measure(trial, 1.0) if has_time else None
            trial = steering.send(outcome)
    except StopIteration as end:
        found: SearchResult = end.value
        return found


def purposes(target: SimulatedTarget) -> list[str]:
    return [trial.purpose.value for trial in target.asked]


def test_what_gains_is_kept_and_what_does_not_is_not():
    toggles = [toggle("a"), toggle("b"), toggle("c")]
    target = SimulatedTarget(toggles=toggles, cost=product_of(a=0.8, b=1.1, c=0.9))
    found = run(target)
    assert found.recipe == setting(a="on", c="on")
    assert found.is_complete
    assert found.final is not None
    assert found.final.log_ratio == pytest.approx(math.log(0.72))


def test_each_trial_builds_on_what_was_accepted_before():
    target = SimulatedTarget(toggles=[toggle("a"), toggle("b")], cost=product_of(a=0.8, b=0.9))
    run(target)
    assert target.asked[:2] == [
        Trial(purpose=Purpose.ADD, before=(), after=setting(a="on")),
        Trial(purpose=Purpose.ADD, before=setting(a="on"), after=setting(a="on", b="on")),
    ]
    assert target.asked[-1] == Trial(purpose=Purpose.FINAL, before=(), after=setting(a="on", b="on"))


def test_the_values_of_a_toggle_compete_and_the_fastest_is_kept():
    focal = toggle("focal", "implicit", "fused", "compiled")
    cost = product_of(focal_implicit=0.9, focal_fused=0.7, focal_compiled=0.8)
    target = SimulatedTarget(toggles=[focal], cost=cost)
    assert run(target).recipe == setting(focal="fused")
    assert target.asked[1].before == setting(focal="implicit")


def test_of_equally_fast_values_the_first_is_kept():
    target = SimulatedTarget(toggles=[toggle("focal", "one", "two")], cost=product_of(focal=0.7))
    assert run(target).recipe == setting(focal="one")


def test_a_gain_that_only_exists_on_top_of_a_later_one_is_found():
    def cost(chosen):
        return {(): 1.0, ("b",): 0.8, ("a",): 1.2, ("a", "b"): 0.6}[tuple(sorted(chosen))]

    target = SimulatedTarget(toggles=[toggle("a"), toggle("b")], cost=cost)
    assert run(target).recipe == setting(a="on", b="on")
    assert "pair" not in purposes(target)


def test_two_that_gain_only_together_are_found():
    def cost(chosen):
        return 0.7 if {"a", "c"} <= chosen.keys() else 1.0 + 0.1 * len(chosen.keys() & {"a", "c"})

    target = SimulatedTarget(toggles=[toggle("a"), toggle("b"), toggle("c")], cost=cost)
    assert run(target).recipe == setting(a="on", c="on")
    assert "pair" in purposes(target)


def test_two_that_only_gain_apart_are_not_kept_together():
    def cost(chosen):
        return {0: 1.0, 1: 0.8, 2: 1.1}[len(chosen)]

    target = SimulatedTarget(toggles=[toggle("a"), toggle("b")], cost=cost)
    assert run(target).recipe == setting(a="on")


def test_what_later_ones_made_superfluous_is_removed():
    def cost(chosen):  # b does all that a does, and more
        return 0.5 if "b" in chosen else 0.8 if "a" in chosen else 1.0

    target = SimulatedTarget(toggles=[toggle("a"), toggle("b")], cost=cost)
    assert run(target).recipe == setting(b="on")
    assert purposes(target) == ["add", "add", "keep", "final"]


def test_a_gain_that_there_is_no_time_to_confirm_is_kept():
    steering = search([toggle("a"), toggle("b")])
    gain = TrialOutcome(verdict=TrialVerdict.FASTER, log_ratio=-0.3, lower=-0.4, upper=-0.2, blocks=5)
    cut_short = TrialOutcome(verdict=TrialVerdict.OPEN, log_ratio=-0.4, blocks=1, is_cut_short=True)
    trial = next(steering)
    while trial.purpose is not Purpose.FINAL:
        trial = steering.send(cut_short if trial.purpose is Purpose.KEEP else gain)
    assert trial.after == setting(a="on", b="on")


def test_the_last_one_that_joined_is_not_measured_again_before_the_end():
    target = SimulatedTarget(toggles=[toggle("a")], cost=product_of(a=0.8))
    run(target)
    assert purposes(target) == ["add", "final"]


def test_other_results_are_refused_however_fast():
    toggles = [toggle("a"), toggle("b")]
    target = SimulatedTarget(toggles=toggles, cost=product_of(a=0.1, b=0.9), refused=lambda chosen: "a" in chosen)
    assert run(target).recipe == setting(b="on")


def test_what_is_refused_alone_is_kept_with_the_toggle_that_mends_it():
    toggles = [toggle("dtype", "bf16"), toggle("loss", "fp32")]
    target = SimulatedTarget(
        toggles=toggles,
        cost=product_of(dtype=0.5, loss=1.0),
        refused=lambda chosen: "dtype" in chosen and "loss" not in chosen,
    )
    assert run(target).recipe == setting(dtype="bf16", loss="fp32")


def test_what_cannot_be_measured_is_left_out():
    toggles = [toggle("a"), toggle("b"), toggle("c")]
    target = SimulatedTarget(toggles=toggles, cost=product_of(a=0.5, b=0.9), broken=lambda chosen: "a" in chosen)
    assert run(target).recipe == setting(b="on")
    assert sum("a" in dict(trial.after) for trial in target.asked) == 1


def test_without_a_gain_nothing_is_compared_at_the_end():
    target = SimulatedTarget(toggles=[toggle("a")], cost=product_of(a=1.0))
    assert run(target) == SearchResult(recipe=(), is_complete=True, final=None)
    assert purposes(target) == ["add"]


def test_no_comparison_is_asked_for_twice():
    generator = random.Random(7)
    for _ in range(50):
        costs = {values: generator.uniform(0.5, 1.5) for values in itertools.product((0, 1), repeat=4)}
        target = SimulatedTarget(
            toggles=[toggle(name) for name in "abcd"],
            cost=lambda chosen, costs=costs: costs[tuple(int(name in chosen) for name in "abcd")],
        )
        run(target)
        compared = [(trial.before, trial.after) for trial in target.asked if trial.purpose is not Purpose.FINAL]
        assert len(set(compared)) == len(compared)


@pytest.mark.parametrize("most", range(8))
def test_out_of_time_it_keeps_what_it_has_and_still_compares_it_with_the_reference(most):
    names = "abcdefgh"
    target = SimulatedTarget(toggles=[toggle(name) for name in names], cost=product_of(**dict.fromkeys(names, 0.8)))
    found = run(target, most)
    assert found.recipe == setting(**dict.fromkeys(names[:most], "on"))
    assert not found.is_complete
    assert (found.final is None) == (most == 0)


def test_with_noise_the_recipe_is_nearly_as_fast_as_the_best_of_all_combinations():
    """Over 40 random landscapes with interactions, in far fewer trials than there are combinations."""
    generator, names, excesses, trials = random.Random(11), "abcdef", [], []
    for seed in range(40):
        alone = {name: generator.choice((0.0, 0.0, -0.1, -0.3, 0.1)) for name in names}
        together = {pair: generator.choice((0.0, 0.0, 0.0, 0.1, -0.1)) for pair in itertools.combinations(names, 2)}

        def cost(chosen, alone=alone, together=together):
            single = sum(alone[name] for name in chosen)
            return math.exp(single + sum(extra for pair, extra in together.items() if set(pair) <= chosen.keys()))

        target = SimulatedTarget(toggles=[toggle(name) for name in names], cost=cost, noise=0.004, seed=seed)
        found = run(target)
        subsets = itertools.chain.from_iterable(itertools.combinations(names, n) for n in range(len(names) + 1))
        best = min(cost(dict.fromkeys(subset, "on")) for subset in subsets)
        excesses.append(cost(dict(found.recipe)) / best - 1)
        trials.append(len(target.asked))
    assert sum(excess <= 0.10 for excess in excesses) >= 34
    assert sum(trials) / len(trials) < 2 ** len(names) / 2


def test_findings_decide_what_is_tried_first():
    toggles = [toggle("dtype", "bf16"), toggle("memory_format"), toggle("optimizer", "foreach", "fused")]
    hints = [
        ToggleHint(code="advice.unfused", share=0.3),
        ToggleHint(code="advice.layout", share=0.1),
        ToggleHint(code="x", share=None),
    ]
    answers = {"advice.unfused": (("optimizer", "fused"),), "advice.layout": (("memory_format", "on"),)}
    ordered = by_promise(toggles, hints, answers, {})
    assert [each.name for each in ordered] == ["optimizer", "memory_format", "dtype"]
    assert ordered[0].values == ("fused", "foreach")
    assert by_promise(toggles, (), answers, {}) == tuple(toggles)


def test_without_findings_what_saved_most_elsewhere_is_tried_first():
    toggles = [toggle("a"), toggle("b"), toggle("c", "x", "y"), toggle("slow")]
    gains = {("b", "on"): 0.1, ("c", "y"): 0.3, ("slow", "on"): -0.2}
    ordered = by_promise(toggles, (), {}, gains)
    assert [each.name for each in ordered] == ["c", "b", "a", "slow"]
    assert ordered[0].values == ("y", "x")
    assert by_promise(toggles, [ToggleHint(code="h", share=None)], {"h": (("a", "on"),)}, gains)[0].name == "a"


def test_a_gain_is_what_the_whole_interval_says():
    target = SimulatedTarget(toggles=[toggle("a")], cost=product_of(a=0.995))
    assert (
        target.measure(Trial(purpose=Purpose.ADD, before=(), after=setting(a="on")), 1.0).verdict is TrialVerdict.OPEN
    )
    assert run(target).recipe == ()
