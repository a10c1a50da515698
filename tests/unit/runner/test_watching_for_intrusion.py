"""What one arm's processes use while the other has its turn, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from perfguard.records.run import Arm
from perfguard.runner.blocks.intrusion import IntrusionWatch
from perfguard.runner.process.cpu_clocks import read_cpu_clocks, read_waits, used_s

BUSY = "while True: pass"
ASLEEP = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture
def started():
    """Starts Python with some code."""
    running = []

    def start(code):
        running.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass
class Waiting:
    arm: Arm
    pids: tuple[int, ...]

    def processes(self):
        return self.pids


def wait_until_used(pid, seconds):
    """A turn that lasts until a process has used so much, however busy the machine is."""
    begun = read_cpu_clocks([pid])
    while used_s(begun, read_cpu_clocks([pid])) < seconds:
        pass


def test_clocks_tell_busy_processes_from_sleeping_ones(started):
    busy, asleep = started(BUSY), started(ASLEEP)
    asleep.stdout.readline()
    before = read_cpu_clocks([busy.pid, asleep.pid])
    wait_until_used(busy.pid, 0.05)
    after = read_cpu_clocks([busy.pid, asleep.pid])
    assert after[busy.pid] - before[busy.pid] >= 0.05
    assert after[asleep.pid] - before[asleep.pid] < 0.05
    busy.kill()
    busy.wait()
    assert list(read_cpu_clocks([busy.pid, asleep.pid])) == [asleep.pid]


def test_waits_for_a_cpu_are_read_of_a_process_and_of_oneself(started):
    rivals = [started(BUSY) for _ in range(2)]
    for rival in rivals:
        os.sched_setaffinity(rival.pid, {min(os.sched_getaffinity(0))})
    before = read_waits([rivals[0].pid])
    wait_until_used(rivals[0].pid, 0.05)
    after = read_waits([rivals[0].pid])
    assert list(after) == [rivals[0].pid, "thread-self"]
    assert used_s(before, after) > 0.01
    for rival in rivals:
        rival.kill()
        rival.wait()
    assert list(read_waits([rivals[0].pid])) == ["thread-self"]


def test_an_arm_that_does_not_sleep_is_seen_in_the_turns_of_the_other(started):
    busy, asleep = started(BUSY), started(ASLEEP)
    asleep.stdout.readline()
    watch = IntrusionWatch(
        [Waiting(Arm.BASELINE, (asleep.pid,)), Waiting(Arm.CANDIDATE, (asleep.pid, busy.pid))], cpus=1, turns=26
    )
    with watch.turn(Arm.CANDIDATE):
        wait_until_used(busy.pid, 0.05)
    assert watch.ratio_of(Arm.CANDIDATE) is None  # it was its own turn
    with watch.turn(Arm.BASELINE):
        wait_until_used(busy.pid, 0.05)
    assert watch.ratio_of(Arm.CANDIDATE) > watch.ratio_of(Arm.BASELINE)
    assert 0 < watch.ratio_of(Arm.CANDIDATE) <= 1


def test_what_an_arm_starts_later_is_seen_after_the_second_look(started, monkeypatch):
    monkeypatch.setattr("perfguard.runner.blocks.intrusion.secrets.randbelow", lambda _: 1)
    candidate = Waiting(Arm.CANDIDATE, ())
    watch = IntrusionWatch([Waiting(Arm.BASELINE, ()), candidate], cpus=1, turns=6)
    with watch.turn(Arm.BASELINE):
        busy = started(BUSY)
        candidate.pids = (busy.pid,)
        wait_until_used(busy.pid, 0.05)
    assert watch.ratio_of(Arm.CANDIDATE) in (None, 0.0)
    for _ in range(2):
        with watch.turn(Arm.CANDIDATE), watch.turn(Arm.BASELINE):
            wait_until_used(busy.pid, 0.05)
    assert watch.ratio_of(Arm.CANDIDATE) > 0


def test_more_cpus_have_more_to_give(started):
    busy = started(BUSY)
    arms = [Waiting(Arm.BASELINE, ()), Waiting(Arm.CANDIDATE, (busy.pid,))]
    one, four = IntrusionWatch(arms, cpus=1, turns=26), IntrusionWatch(arms, cpus=4, turns=26)
    with one.turn(Arm.BASELINE), four.turn(Arm.BASELINE):
        wait_until_used(busy.pid, 0.05)
    assert four.ratio_of(Arm.CANDIDATE) < one.ratio_of(Arm.CANDIDATE)


def test_a_turn_that_fails_is_not_counted(started):
    busy = started(BUSY)
    watch = IntrusionWatch([Waiting(Arm.BASELINE, ()), Waiting(Arm.CANDIDATE, (busy.pid,))], cpus=1, turns=26)
    with pytest.raises(RuntimeError), watch.turn(Arm.BASELINE):
        raise RuntimeError
    assert watch.ratio_of(Arm.CANDIDATE) is None


def test_with_one_arm_there_is_nothing_to_tell(started):
    watch = IntrusionWatch([Waiting(Arm.CANDIDATE, (started(BUSY).pid,))], cpus=1, turns=26)
    with watch.turn(Arm.CANDIDATE):
        pass
    assert watch.ratio_of(Arm.CANDIDATE) is None


def test_processes_that_are_gone_are_no_clocks():
    assert used_s({1: 5.0, 2: 1.0}, {2: 3.0, 3: 9.0}) == 2.0
    assert used_s({1: 5.0}, {1: 4.0}) == 0.0  # another process took the number
