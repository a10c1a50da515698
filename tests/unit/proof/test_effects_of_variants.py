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


def test_each_pair_of_processes_gives_the_median_over_samples_that_ran_next_to_each_other(monkeypatch, made, variant):
    slower = iter([1.02, 1.04])

    def alternating(_, cases, *, samples, cpus):
        baseline = [1.0, 2.0, 4.0, 3.0, 1.0]
        ratio = next(slower)
        candidate = [ratio * seconds for seconds in baseline[:-1]]
        return [arm(cases, baseline), arm(cases, [*candidate, 50.0])]

    monkeypatch.setattr(effects, "alternating", alternating)
    row = effects.measured(variant, made, pairs=2)
    (case,) = variant.cases
    assert row["cases"][case]["wall_s"] == pytest.approx([0.02, 0.04])
    assert row["cases"][case]["results"] == [RESULT, RESULT]


def test_a_process_that_failed_is_a_row_that_says_so(monkeypatch, made, variant):
    def alternating(*_, **__):
        raise RuntimeError("a process that times a case ended")

    monkeypatch.setattr(effects, "alternating", alternating)
    row = effects.measured(variant, made, pairs=2)
    assert row["error"] == "a process that times a case ended"
    assert row["cases"] == {}
