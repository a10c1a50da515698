"""Pairs of processes whose script steps take turns, with scripted workers in place of the processes."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from perfguard.errors import MeasurementError, UsageError
from perfguard.records.plan import MeasureSettings
from perfguard.records.run import Arm
from perfguard.runner.profiling.script_pairs import Pairing, ScriptFailedError, first_steps, pairs_of_script
from perfguard.runner.profiling.scripts import Script
from tests.worker_replies import QueuedReplies, ended, profiled, ready

CPUS = (2,)
FUSED = {"name": "optimizer", "value": "fused", "changed": 1, "kept": 0, "unable": 0}


class FakeWorker(QueuedReplies):
    """A worker whose script makes `steps` steps of as many seconds as its arm says."""

    def __init__(self, arm, house):
        super().__init__()
        self.arm, self.house, self.left = arm, house, house.steps

    def send(self, do, **fields):
        self.house.sent.append((self.arm, do))
        if do == "hello":
            self.replies.append(ready(CPUS))
        elif do == "script":
            self.house.seeds.append(fields["seed"])
            self.left -= fields["skip"]
            waiting = {"reply": "waiting", "settings": self.house.settings, "checks": {"loss_1": 0.5}}
            self.replies.append(waiting if self.left >= 0 else self._end(self.house.steps))
        elif do == "step":
            self.left -= 1
            step_s = self.house.step_s[self.arm]
            is_over = self.left < 0
            self.replies.append(self._end(self.house.steps) if is_over else profiled(CPUS, "bare", wall_s=step_s))
        else:
            self.replies.append(self._end(self.house.steps))

    def _end(self, steps):
        return ended(CPUS, steps=steps, problem=self.house.problem, exit_code=1 if self.house.problem else 0)


class House:
    """Starts the workers of both arms, and remembers the commands that they got."""

    def __init__(self, *, steps=1000, problem=None, settings=()):
        self.steps, self.problem, self.settings = steps, problem, list(settings)
        self.step_s = {Arm.BASELINE: 0.2, Arm.CANDIDATE: 0.1}
        self.sent, self.seeds, self.workers = [], [], []

    def start(self, arm, block, settings):
        self.workers.append(FakeWorker(arm, self))
        return self.workers[-1]

    def stepped(self):
        return [arm for arm, do in self.sent if do == "step"]


def pairing(house, *, should_stop=lambda: False, tick=0.0, seed=7):
    ticks = count()
    return Pairing(
        starter=house,
        settings=MeasureSettings(seed=seed),
        cpus=CPUS,
        should_stop=should_stop,
        progress=lambda _: None,
        clock=lambda: next(ticks) * tick,
    )


SCRIPT = Script(path=Path("/project/train.py"), arguments=("--fast",), skip=5, steps=4, timeout_s=60.0)


def test_the_arms_alternate_step_by_step_and_the_first_turn_is_not_timed():
    house = House()
    pair = next(pairs_of_script(SCRIPT, pairing(house)))
    assert pair.baseline_s == (0.2,) * 4
    assert pair.candidate_s == (0.1,) * 4
    stepped = house.stepped()
    assert stepped == stepped[:2] * 5
    assert set(stepped[:2]) == {Arm.BASELINE, Arm.CANDIDATE}
    assert [do for _, do in house.sent[-2:]] == ["stop", "stop"]
    assert all(worker.is_closed for worker in house.workers)


def test_which_arm_is_first_differs_between_pairs():
    house = House()
    pairs = pairs_of_script(SCRIPT, pairing(house))
    for _ in range(12):
        next(pairs)
    assert set(house.stepped()[::10]) == {Arm.BASELINE, Arm.CANDIDATE}


def test_both_arms_of_a_pair_have_one_seed_and_other_pairs_another():
    house = House()
    pairs = pairs_of_script(SCRIPT, pairing(house))
    first, second = next(pairs), next(pairs)
    assert house.seeds == [first.data_seed] * 2 + [second.data_seed] * 2
    assert first.data_seed != second.data_seed
    assert first.checks == {Arm.BASELINE: {"loss_1": 0.5}, Arm.CANDIDATE: {"loss_1": 0.5}}


def test_steps_are_taken_for_as_long_as_the_start_took():
    pair = next(pairs_of_script(SCRIPT, pairing(House(), tick=1.0)))
    assert len(pair.baseline_s) == SCRIPT.steps
    ticks = iter([0.0, 100.0, 100.0, *range(101, 110), 200.0, 201.0, *([300.0] * 9)])
    slow = Pairing(
        starter=House(),
        settings=MeasureSettings(seed=7),
        cpus=CPUS,
        should_stop=lambda: False,
        progress=lambda _: None,
        clock=lambda: next(ticks),
    )
    pair = next(pairs_of_script(SCRIPT, slow))
    assert len(pair.baseline_s) == SCRIPT.steps + len(range(101, 110))


def test_a_script_that_ends_after_enough_steps_has_its_pair():
    house = House(steps=SCRIPT.skip + 1 + 4)
    ticks = iter([0.0, 1000.0, *([1001.0] * 20)])
    slow = Pairing(
        starter=house,
        settings=MeasureSettings(seed=7),
        cpus=CPUS,
        should_stop=lambda: False,
        progress=lambda _: None,
        clock=lambda: next(ticks),
    )
    pair = next(pairs_of_script(SCRIPT, slow))
    assert (len(pair.baseline_s), len(pair.candidate_s)) == (4, 4)


@pytest.mark.parametrize(
    ("house", "says"),
    [
        (House(steps=SCRIPT.skip + 2), "ended after 7 optimizer steps"),
        (House(steps=0), "makes no step of a torch.optim optimizer"),
        (House(steps=SCRIPT.skip + 2, problem="ValueError: no"), "failed: ValueError: no"),
    ],
)
def test_scripts_that_cannot_take_turns_are_errors(house, says):
    with pytest.raises(MeasurementError, match=says):
        next(pairs_of_script(SCRIPT, pairing(house)))
    assert all(worker.is_closed for worker in house.workers)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [0, SCRIPT.skip + 2])
def test_a_script_that_fails_in_both_arms_fails_in_the_baseline_whichever_is_first(steps, seed):
    house = House(steps=steps, problem="ValueError: no")
    with pytest.raises(ScriptFailedError) as failed:
        next(pairs_of_script(SCRIPT, pairing(house, seed=seed)))
    assert failed.value.arm is Arm.BASELINE


def test_a_setting_without_effect_is_found_before_a_step_is_timed():
    house = House(settings=[{**FUSED, "changed": 0, "unable": 1}])
    with pytest.raises(UsageError, match="ignores optimizer=fused"):
        next(pairs_of_script(SCRIPT, pairing(house)))
    assert house.stepped() == []


def test_an_interrupted_pair_is_left_out():
    house = House()
    found = list(pairs_of_script(SCRIPT, pairing(house, should_stop=lambda: len(house.stepped()) > 14)))
    assert len(found) == 1
    assert all(worker.is_closed for worker in house.workers)


def test_first_steps_of_one_arm_run_under_the_seed_that_is_asked_for():
    house = House()
    assert first_steps(SCRIPT, pairing(house), Arm.BASELINE, data_seed=11) == {"loss_1": 0.5}
    assert house.seeds == [11]
    assert house.stepped() == []
