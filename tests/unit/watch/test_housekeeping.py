"""A reader that keeps out of the way of what is measured."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perfguard.watch.housekeeping import housekeeping_cpus

STEP_ASIDE = """
import os, sys, threading
from perfguard.watch.housekeeping import keep_off
waiting = threading.Event()
seen = {}
def wait():
    waiting.wait()
    seen["affinity"], seen["policy"] = os.sched_getaffinity(0), os.sched_getscheduler(0)
other = threading.Thread(target=wait)
other.start()
placed = keep_off({int(cpu) for cpu in sys.argv[1:]})
print(placed.code, placed.values["niceness"])
waiting.set()
other.join()
print(*sorted(os.sched_getaffinity(0)))
print(seen["affinity"] == os.sched_getaffinity(0), seen["policy"] == os.sched_getscheduler(0))
"""


START_FROM_THE_SIDE = """
import os, subprocess, sys
from perfguard.watch.housekeeping import StartingThread, keep_off
says = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0))"]
before = subprocess.run(says, capture_output=True, text=True).stdout
starting = StartingThread()
keep_off({max(os.sched_getaffinity(0))}, spared={starting.id})
print(os.sched_getscheduler(0) == os.SCHED_IDLE or os.getpriority(os.PRIO_PROCESS, 0) == 19)
print(subprocess.run(says, capture_output=True, text=True).stdout == before)
print(starting.run(lambda: subprocess.run(says, capture_output=True, text=True).stdout) == before)
"""


@pytest.fixture
def cores(tmp_path):
    """Four cores of two threads, as the kernel describes them: cpu 0 and 4 are the first one."""
    for cpu in range(8):
        place = tmp_path / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def step_aside(*cpus: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", STEP_ASIDE, *map(str, cpus)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_reader_goes_to_cores_that_are_not_measured(cores):
    assert housekeeping_cpus(range(8), {1, 2, 3}, cores) == {0, 4}


def test_beside_a_measured_thread_is_better_than_on_it(cores):
    assert housekeeping_cpus(range(8), {0, 1, 2, 3}, cores) == {4, 5, 6, 7}


def test_there_is_nothing_where_all_is_measured(cores):
    assert housekeeping_cpus(range(8), range(8), cores) == frozenset()


def test_only_cpus_that_the_reader_may_use_count(cores):
    assert housekeeping_cpus({1, 2}, {1}, cores) == {2}


def test_a_kernel_that_tells_nothing_of_cores_is_taken_at_its_cpus(tmp_path):
    assert housekeeping_cpus({0, 1}, {1}, tmp_path) == {0}


def test_nobody_is_moved_where_nothing_is_measured():
    said, cpus, alike = step_aside()
    assert cpus == " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert said.startswith("reader.placed")
    assert alike == "True True"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.two_cpus
def test_every_thread_leaves_the_measured_cpus_and_runs_behind_everybody():
    measured = max(os.sched_getaffinity(0))
    said, cpus, alike = step_aside(measured)
    assert str(measured) not in cpus.split()
    assert said in ("reader.placed None", "reader.placed 19")
    assert alike == "True True"


def test_a_reader_without_another_cpu_says_that_it_disturbs():
    said, *_ = step_aside(*os.sched_getaffinity(0))
    assert said.startswith("reader.on_measured_cpus")


def test_what_a_reader_starts_has_the_cpus_and_the_priority_that_it_had_itself():
    done = subprocess.run([sys.executable, "-c", START_FROM_THE_SIDE], capture_output=True, text=True, check=True)
    has_stepped_aside, its_child_is_as_before, a_started_one_is_as_before = done.stdout.splitlines()
    assert has_stepped_aside == "True"
    assert its_child_is_as_before == "False"
    assert a_started_one_is_as_before == "True"
