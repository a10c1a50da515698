"""What a variant does to its cases, out of the times of pairs of processes."""

from __future__ import annotations

import pytest

from tests.proof.gates_against_peers import catalogue, effects
from tests.proof.gates_against_peers.making import BASE, Made

RESULT = 12.0


def arm(cases, seconds):
    return {case: {"wall_s": list(seconds), "cpu_s": list(seconds), "result": RESULT} for case in cases}


@pytest.fixture
def variant():
    return next(variant for variant in catalogue.ALL if variant.name == "spin-02")


@pytest.fixture
def made(tmp_path, variant):
    return Made(trees={BASE: tmp_path / "base", variant.name: tmp_path / variant.name}, repository=tmp_path)


def test_pairs_of_processes_give_medians_of_neighbours_and_start_with_either_arm_by_turns(monkeypatch, made, variant):
    slower = iter([1.02, 1.04])
    first = []

    def alternating(arms, cases, *, samples, cpus):
        first.append(arms[0][0].name)
        baseline = [1.0, 2.0, 4.0, 3.0, 1.0]
        ratio = next(slower)
        candidate = [ratio * seconds for seconds in baseline[:-1]]
        times = {"base": arm(cases, baseline), variant.name: arm(cases, [*candidate, 50.0])}
        return [times[tree.name] for tree, _ in arms]

    monkeypatch.setattr(effects, "alternating", alternating)
    row = effects.measured(variant, made, pairs=2)
    (case,) = variant.cases
    assert row["cases"][case]["wall_s"] == pytest.approx([0.02, 0.04])
    assert first == ["base", variant.name]
    assert row["cases"][case]["results"] == [RESULT, RESULT]


def test_a_process_that_failed_is_a_row_that_says_so(monkeypatch, made, variant):
    def alternating(*_, **__):
        raise RuntimeError("a process that times a case ended")

    monkeypatch.setattr(effects, "alternating", alternating)
    row = effects.measured(variant, made, pairs=2)
    assert row["error"] == "a process that times a case ended"
    assert row["cases"] == {}
