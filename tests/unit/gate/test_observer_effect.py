"""What watching costs: rounds with a reader against rounds without."""

from __future__ import annotations

import math
import random

import pytest

from perfguard.errors import MeasurementError
from perfguard.gate import observer_effect
from perfguard.gate.observer_effect import RoundSwitch, effect_of, log_ratios
from perfguard.records.events import BlockFinished, BlockStarted, RunFinished
from perfguard.report.terminal.observer import observer_lines


@pytest.fixture(autouse=True)
def one_draw(monkeypatch):
    """Which round of a pair is watched, the same in every run: one draw in thirty puts all of a drift on one side."""
    monkeypatch.setattr(observer_effect.random, "SystemRandom", lambda: random.Random(7))


class FakeReader:
    """Notes what is asked of it; uses a tenth of a CPU."""

    text = "perfguard tui"

    def __init__(self, *, alive: bool = True) -> None:
        self.asked: list[str] = []
        self.alive = alive
        self.used_s = 0.0

    def start(self, folder) -> None:
        self.asked.append("start")

    def suspend(self) -> None:
        self.asked.append("suspend")

    def resume(self) -> None:
        self.asked.append("resume")

    def is_alive(self) -> bool:
        return self.alive

    def cpu_s(self) -> float:
        self.used_s += 0.1
        return self.used_s

    def stop(self) -> None:
        self.asked.append("stop")


def play(switch: RoundSwitch, rounds: int) -> None:
    for number in range(rounds):
        switch.observe(BlockStarted(block=number, hash_seed=1, data_seed=1, case_ids=("a",)))
        switch.observe(
            BlockFinished(
                block=number, started_at=0.0, duration_s=1.0, steal_ratio=None, involuntary_switches=0
            )
        )  # fmt: skip


def medians(watched, *, factor: float, cases=("a", "b"), pairs: int = 6) -> dict[tuple[str, int], float]:
    return {
        (case, number): 0.01 * (1 + number / 1000) * (factor if number in watched else 1.0)
        for case in cases
        for number in range(2 * pairs)
    }


def test_one_round_of_each_pair_is_watched():
    reader = FakeReader()
    switch = RoundSwitch(reader, 50, lambda event: None)
    assert sorted(number // 2 for number in switch.watched) == list(range(50))
    assert 0 < sum(number % 2 for number in switch.watched) < 50
    play(switch, 100)
    assert reader.asked == ["resume" if number in switch.watched else "suspend" for number in range(100)]


def test_others_see_the_events_too():
    seen = []
    switch = RoundSwitch(FakeReader(), 3, seen.append)
    play(switch, 6)
    switch.observe(RunFinished(outcome="measured", exit_code=0, reason=""))
    assert len(seen) == 13


def test_a_reader_that_ended_by_itself_is_an_error_and_not_a_small_effect():
    switch = RoundSwitch(FakeReader(alive=False), 3, lambda event: None)
    with pytest.raises(MeasurementError, match="ended by itself"):
        play(switch, 1)


def test_an_effect_of_the_reader_is_found():
    reader = FakeReader()
    switch = RoundSwitch(reader, 6, lambda event: None)
    play(switch, 12)
    effect = effect_of(reader, switch, medians(switch.watched, factor=1.05), "run-1")
    assert effect.overall.log_ratio == pytest.approx(math.log(1.05), abs=0.002)
    assert effect.overall.interval.lower > 0
    assert (effect.pairs, [case.case_id for case in effect.cases]) == (6, ["a", "b"])
    assert effect.reader_cpu_ratio == pytest.approx(0.1)
    lines = observer_lines(effect)
    assert lines[0].startswith("effect of `perfguard tui`, 6 pairs of rounds with and without it: +")
    assert lines[0].endswith("; it used 10.00 % of one CPU")
    assert lines[-1].startswith("watching slows what is measured here")


def test_no_effect_is_said_with_what_would_have_been_seen():
    reader = FakeReader()
    switch = RoundSwitch(reader, 6, lambda event: None)
    play(switch, 12)
    effect = effect_of(reader, switch, medians(switch.watched, factor=1.0), "run-1")
    assert effect.overall.interval.lower <= 0 <= effect.overall.interval.upper
    assert observer_lines(effect)[-1].startswith("no effect was seen; one beyond 0.")


def test_too_few_pairs_say_nothing():
    reader = FakeReader()
    switch = RoundSwitch(reader, 6, lambda event: None)
    with pytest.raises(MeasurementError, match="2 pairs of rounds were measured, and 3 are needed"):
        effect_of(reader, switch, medians(switch.watched, factor=1.0, pairs=2), "run-1")


def test_only_complete_pairs_count():
    times_s = {("a", 0): 2.0, ("a", 1): 1.0, ("a", 2): 2.0, ("b", 4): 1.0, ("b", 5): 1.0}
    assert log_ratios(times_s, {0, 2, 5}) == {"a": {0: pytest.approx(math.log(2))}, "b": {2: 0.0}}
