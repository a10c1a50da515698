"""Foreign commands that print, fail, hang, or leave something running."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from perfguard.runner.process.launching import run_captured
from tests.tiny_projects import wait_for

LEAVES_A_PROCESS = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(left.pid)
"""


def run(tmp_path, code, *, timeout_s=60.0, **options):
    return run_captured(
        [sys.executable, "-c", code], directory=tmp_path, environment=os.environ, timeout_s=timeout_s, **options
    )


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_what_is_printed_and_how_it_ended_are_kept(tmp_path):
    done = run(tmp_path, "import os, sys; print(os.getcwd()); sys.stderr.write('\\udcff'); sys.exit(3)")
    assert (done.returncode, done.stdout.strip()) == (3, str(tmp_path))
    assert done.stderr != ""


@pytest.mark.parametrize("ends_it", [True, False])
def test_what_is_left_running_is_not_waited_for_and_ended_where_that_is_asked_for(tmp_path, ends_it):
    left = int(run(tmp_path, LEAVES_A_PROCESS, ends_what_it_started=ends_it).stdout)
    try:
        if ends_it:
            assert wait_for(lambda: not is_running(left))
        else:
            assert is_running(left)
    finally:
        if is_running(left):
            psutil.Process(left).kill()


def test_what_hangs_is_killed(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, "import time; time.sleep(600)", timeout_s=0.2)


def test_a_command_that_is_none_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        run_captured(["/no/such/program"], directory=tmp_path, environment={}, timeout_s=1.0)


def test_of_a_flood_the_end_is_kept(tmp_path):
    done = run(tmp_path, "import sys; sys.stdout.write('x' * (17 << 20)); print('last words')")
    assert len(done.stdout) == 16 << 20
    assert done.stdout.endswith("last words\n")
