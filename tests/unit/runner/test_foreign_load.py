"""What programs beside the workers take of the measured CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from perfguard.runner.blocks.foreign_load import ForeignLoad, LoadReading, RunningProgram, foreign_load, read_load

SHELL, OWN, SERVER, WORKER, OTHER = 10, 20, 21, 22, 30
PARENTS = {SHELL: 1, OWN: SHELL, SERVER: OWN, WORKER: SERVER, OTHER: 1}
NAMES = {"shell": SHELL, "own": OWN, "server": SERVER, "worker": WORKER, "other": OTHER}


def reading(busy_s=0.0, *, ended_s=0.0, left=(), **cpu_s):
    """Processes on CPU 1; `ended_s` are CPU seconds of what the server had started."""
    programs = {
        pid: RunningProgram(
            name=name,
            parent=1 if name in left else PARENTS[pid],
            cpu_s=cpu_s.get(name, 0.0),
            ended_s=ended_s if name == "server" else 0.0,
            threads=1,
            cpu=0 if name == "own" else 1,
        )
        for name, pid in NAMES.items()
    }
    return LoadReading(programs, {0: 5.0, 1: busy_s})


def load(after, *, cpus=(1,), elapsed_s=2.0):
    return foreign_load(reading(), after, own=OWN, cpus=cpus, elapsed_s=elapsed_s)


def test_another_program_on_the_measured_cpus_is_named():
    assert load(reading(2.0, other=0.5, worker=1.5)) == ForeignLoad(0.25, "other")


def test_what_has_ended_by_now_counts_on_both_sides():
    assert load(reading(2.0, worker=0.5, ended_s=1.0)) == ForeignLoad(0.25, None)


def test_what_perfguard_does_on_other_cpus_does_not_count():
    assert load(reading(2.0, own=9.0, worker=2.0)) == ForeignLoad(0.0, None)
    assert load(reading(2.0, other=0.5), cpus=(0,)) == ForeignLoad(0.0, None)


def test_a_worker_that_was_left_behind_is_foreign():
    assert load(reading(2.0, server=1.5, worker=0.5, left=("worker",))) == ForeignLoad(0.25, "worker")


@pytest.mark.parametrize("after", [LoadReading({}, {1: 1.0}), LoadReading(reading().programs, {})])
def test_where_the_kernel_does_not_tell_nothing_is_known(after):
    assert load(after) is None


def test_a_name_with_brackets_and_spaces_is_read(tmp_path):
    place = tmp_path / "proc" / "42"
    place.mkdir(parents=True)
    behind = ["S", "1", *["0"] * 9, "300", "100", "20", "30", *["0"] * 2, "2", *["0"] * 18, "3"]
    (place / "stat").write_text(f"42 (a) b (c) {' '.join(behind)}\n")
    (tmp_path / "proc" / "43").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  9 9\ncpu3 10 20 30 4000 500 6 7 8 0 0\nintr 5\n")
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    found = read_load(tmp_path)
    assert found.programs == {
        42: RunningProgram("a) b (c", 1, pytest.approx(400 * tick_s), pytest.approx(50 * tick_s), 2, 3)
    }
    assert found.busy_s == {3: pytest.approx(73 * tick_s)}


def test_a_busy_process_is_seen():
    cpu = min(os.sched_getaffinity(0))
    busy, idle = (
        subprocess.Popen([sys.executable, "-c", f"import os, time; os.sched_setaffinity(0, [{cpu}])\n{code}"])
        for code in ("while True: pass", "time.sleep(600)")
    )
    try:
        began_s, before = time.monotonic(), read_load()
        while busy.pid not in (now := read_load()).programs or now.programs[busy.pid].cpu_s < 0.3:
            assert time.monotonic() < began_s + 60
        seen = foreign_load(before, now, own=idle.pid, cpus=[cpu], elapsed_s=time.monotonic() - began_s)
        assert seen.ratio > 0
        assert seen.name
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
