"""What programs beside the workers take of the measured CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from perfguard.runner.blocks.foreign_load import ForeignLoad, RunningProgram, foreign_load, read_programs

SHELL, OWN, WORKER, OTHER = 10, 20, 21, 30


def programs(**cpu_s):
    parents = {SHELL: 1, OWN: SHELL, WORKER: OWN, OTHER: 1}
    names = {"shell": SHELL, "own": OWN, "worker": WORKER, "other": OTHER}
    return {
        pid: RunningProgram(name=name, parent=parents[pid], cpu_s=cpu_s.get(name, 0.0), cpu=1)
        for name, pid in names.items()
    }


def load(after, *, cpus=(1,), elapsed_s=2.0):
    return foreign_load(programs(), after, own=OWN, cpus=cpus, elapsed_s=elapsed_s)


def test_another_program_on_the_measured_cpus_is_named():
    assert load(programs(other=0.5, worker=1.5)) == ForeignLoad(0.25, "other")
    assert load(programs(other=0.5), cpus=(0, 1)) == ForeignLoad(0.125, "other")


def test_what_perfguard_started_and_what_started_it_is_its_own():
    assert load(programs(shell=0.1, own=0.2, worker=1.5)) == ForeignLoad(0.0, None)


def test_a_worker_that_was_left_behind_is_not():
    after = programs(worker=0.5)
    after[WORKER] = after[WORKER]._replace(parent=1)
    assert load(after) == ForeignLoad(0.25, "worker")


def test_what_runs_on_other_cpus_does_not_count():
    assert load(programs(other=0.5), cpus=(0,)) == ForeignLoad(0.0, None)


def test_where_nothing_can_be_read_nothing_is_known():
    assert load({}) is None


def test_a_name_with_brackets_and_spaces_is_read(tmp_path):
    place = tmp_path / "proc" / "42"
    place.mkdir(parents=True)
    behind = ["S", "1", *["0"] * 9, "300", "100", *["0"] * 4, "2", *["0"] * 18, "3"]
    (place / "stat").write_text(f"42 (a) b (c) {' '.join(behind)}\n")
    (tmp_path / "proc" / "43").mkdir()
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    assert read_programs(tmp_path) == {42: RunningProgram("a) b (c", 1, pytest.approx(200 * tick_s), 3)}


def test_a_busy_process_is_seen():
    cpu = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
    try:
        before, until = read_programs(), time.monotonic() + 60
        while (now := read_programs()).get(busy.pid) is None or now[busy.pid].cpu_s < 0.1:
            assert time.monotonic() < until
        assert before[os.getpid()].name
        seen = foreign_load({busy.pid: now[busy.pid]._replace(cpu_s=0.0)}, now, own=1 << 30, cpus=[cpu], elapsed_s=1)
        assert seen is None  # the reader itself is not among the processes
        changed = now | {busy.pid: now[busy.pid]._replace(parent=1)}
        seen = foreign_load(
            {busy.pid: now[busy.pid]._replace(cpu_s=0.0)}, changed, own=os.getpid(), cpus=[cpu], elapsed_s=1
        )
        assert seen.ratio >= 0.1
        assert seen.name.startswith("python")
    finally:
        busy.kill()
        busy.wait()
