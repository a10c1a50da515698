"""benchdnn is run by a stand-in: a script of that name that says how it was started."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from perfguard.runner.profiling.replays import Benchdnn, BenchdnnFailure, find_benchdnn

CPU = max(os.sched_getaffinity(0))


@pytest.fixture
def stand_in(tmp_path):
    """Writes the script; gives what runs it."""

    def write(source, *, timeout_s=60.0, **environment):
        path = tmp_path / "benchdnn"
        path.write_text(f"#!{sys.executable} -I\n{textwrap.dedent(source)}")
        path.chmod(0o755)
        return Benchdnn(path=str(path), environment=environment, cpus=(CPU,), timeout_s=timeout_s)

    return write


def test_it_runs_pinned_in_the_environment_of_the_workers_with_its_options(stand_in):
    benchdnn = stand_in(
        "import os, sys; print(sys.argv[1:], sorted(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'), "
        "os.environ.get('HOME'))",
        OMP_NUM_THREADS="3",
    )
    assert benchdnn.run(["--conv", "--dt=f32:f32:f32", "a b"]) == (
        f"['--conv', '--dt=f32:f32:f32', 'a b'] [{CPU}] 3 None\n"
    )


@pytest.mark.parametrize("code", [0, 1])
def test_a_problem_that_it_cannot_run_is_told_by_what_it_prints(stand_in, code):
    assert "UNIMPLEMENTED" in stand_in(f"print('0:UNIMPLEMENTED __REPRO: --conv'); exit({code})").run(["--conv"])


def test_other_exit_codes_are_failures_with_its_last_words(stand_in):
    with pytest.raises(BenchdnnFailure, match="exit code 2: no such driver"):
        stand_in("import sys; print('no such driver', file=sys.stderr); exit(2)").run(["--x"])


def test_a_crash_is_a_failure(stand_in):
    with pytest.raises(BenchdnnFailure, match="exit code -6: it printed nothing"):
        stand_in("import os; os.abort()").run(["--x"])


def test_it_is_not_waited_for_longer_than_allowed(stand_in):
    with pytest.raises(BenchdnnFailure, match="no answer in 0 s"):
        stand_in("import time; time.sleep(600)", timeout_s=0.2).run(["--x"])


def test_it_is_found_on_the_path_of_the_environment_only(stand_in, tmp_path):
    path = stand_in("").path
    assert find_benchdnn({"PATH": f"/nowhere:{tmp_path}"}) == path
    assert find_benchdnn({"PATH": "/nowhere"}) is None
    assert Path(path).is_absolute()


def test_a_file_that_cannot_be_run_is_not_found(tmp_path):
    (tmp_path / "benchdnn").write_text("")
    assert find_benchdnn({"PATH": str(tmp_path)}) is None
