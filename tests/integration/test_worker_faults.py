"""Benchmarks that break, block or outlive their worker. No torch: they are plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import perfguard
from perfguard.records.run import Arm
from perfguard.runner.process import worker_process
from perfguard.runner.process.worker_process import WorkerFailure
from tests.real_workers import plain_case
from tests.worker_rigs import IMPATIENT, completed, failures


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("os._exit(3)", "case.exited"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "case.crashed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "case.killed"),
        ("os.closerange(3, 256)", "case.exited"),
        ("rubbish()", "case.worker_failed"),
        ("os.sched_setaffinity(0, other_cpus())", "case.moved_cpus"),
    ],
)
@pytest.mark.parametrize("moment", ["in the set-up", "in a slice"])
@pytest.mark.two_cpus
def test_a_case_that_breaks_its_worker_is_dropped_and_the_next_block_goes_on(rig, fault, code, moment):
    if "affinity" in fault and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs a second CPU to move to")
    call_number = 1 if moment == "in the set-up" else 5
    made = rig(
        f"""
        import os, signal
        calls = []

        def rubbish():
            for descriptor in range(3, 256):
                try:
                    os.write(descriptor, b"\\0\\xff rubbish")
                except OSError:
                    pass

        def other_cpus():
            return set(range(os.cpu_count())) - os.sched_getaffinity(0)

        def bad():
            def call():
                calls.append(0)
                if len(calls) == {call_number}:
                    {fault}
                return 1.0
            return call
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good")
    assert failures(events)["bad"].reason.code == code
    assert list(failures(events)) == ["bad"]
    assert "good" in completed(events)
    assert made.survivors() == []


@pytest.mark.parametrize("call_number", [1, 3, 5])
def test_a_case_that_hangs_is_killed_after_its_time_and_dropped(rig, call_number):
    made = rig(
        f"""
        import time
        calls = []
        def bad():
            def call():
                calls.append(0)
                if len(calls) == {call_number}:
                    time.sleep(600)
                return 1.0
            return call
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good", arms=(Arm.CANDIDATE,))
    assert failures(events)["bad"].reason.code == "case.timed_out"
    assert "good" in completed(events)
    assert made.survivors() == []


def test_a_worker_that_ignores_everything_is_killed_when_it_is_closed(rig):
    made = rig(
        """
        import atexit, signal, time
        def bad():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            atexit.register(time.sleep, 600)
            return lambda: 1.0
        """
    )
    with made.worker() as (worker, _):
        worker.prepare(plain_case("bad"), seed=1, check=False)
    assert made.survivors() == []


@pytest.mark.parametrize(
    "how",
    [
        "os.fork() or time.sleep(600)",
        "subprocess.Popen(['sleep', '600'])",
        "subprocess.Popen(['sleep', '600'], start_new_session=True)",
        "subprocess.run(['sh', '-c', 'setsid sleep 600 >/dev/null 2>&1 &'])",
    ],
)
def test_a_child_that_a_benchmark_leaves_behind_is_gone_when_the_worker_is(rig, how):
    made = rig(
        f"""
        import os, subprocess, time, warnings
        def bad():
            warnings.simplefilter("ignore")
            started = []
            def call():
                if not started:
                    started.append({how})
                return 1.0
            return call
        """
    )
    events = made.measure("bad", "good")
    assert failures(events) == {}
    assert made.survivors() == []


def test_a_crash_is_noticed_although_a_child_of_the_worker_holds_its_pipes(rig):
    """With the pipe's end as the only sign, the parent would wait for the whole timeout."""
    made = rig(
        """
        import os, time
        def bad():
            if os.fork() == 0:
                time.sleep(600)
            os._exit(7)
        """
    )
    with made.worker() as (worker, _), pytest.raises(WorkerFailure, match="ended by itself with exit code 7"):
        worker.prepare(plain_case("bad"), seed=1, check=False)
    assert made.survivors() == []


def test_a_benchmark_that_deletes_its_directory_fails_whatever_lay_there(rig):
    made = rig(
        """
        import os, shutil
        def bad():
            shutil.rmtree(os.path.realpath(os.getcwd()))
            return lambda: 1.0
        """
    )
    events = made.measure("bad", "good")
    assert failures(events).keys() == {"bad", "good"}
    assert made.survivors() == []


def test_no_worker_survives_a_parent_that_was_killed(rig, tmp_path):
    made = rig("import time\ndef bad():\n    return lambda: time.sleep(600) or 1.0\n")
    arm = made.starter.arms[Arm.CANDIDATE]
    launch = {
        "command": [arm.interpreter, str(Path(arm.bundle) / "start.py"), "perfguard.worker"],
        "environment": dict(arm.environment),
        "directory": str(made.tree),
        "cpus": list(made.starter.cpus),
        "logs": str(made.folder / "logs"),
    }
    driver = tmp_path / "driver.py"
    driver.write_text(
        textwrap.dedent(
            f"""
            import json, os, pathlib, sys, time
            sys.path.insert(0, {str(Path(perfguard.__file__).parent.parent)!r})
            from perfguard.runner.process.forking import ForkServer
            from perfguard.runner.process.launching import launched
            from perfguard.runner.process.worker_process import WorkerProcess

            launch = json.loads(sys.argv[1])
            logs = pathlib.Path(launch["logs"])
            server = ForkServer(
                launched(launch["command"], cpus=launch["cpus"]),
                environment=launch["environment"], directory=launch["directory"], preloads=(), log=logs / "server.log",
            )
            worker = WorkerProcess(
                lambda channels, timeout_s: server.fork(("--worker", "-q"), channels, timeout_s=timeout_s),
                log=logs / "driver.log", outbox=logs,
            )
            worker.send("hello", protocol=1, job={{"import_torch": False}})
            worker.receive(60)
            worker.send("prepare", case={{"id": "bad", "target": "bench.py:bad", "parameters": {{}},
                                          "phase": "forward"}}, seed=1)
            print(worker.pid, flush=True)
            time.sleep(600)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(driver), json.dumps(launch)], stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(parent.stdout.readline()))
    assert worker.is_running()
    parent.kill()
    parent.communicate(timeout=300)
    until = time.monotonic() + 30
    while made.survivors() and time.monotonic() < until:
        time.sleep(0.05)
    assert made.survivors() == []


def test_a_worker_that_fills_its_own_command_pipe_is_killed(rig, monkeypatch):
    monkeypatch.setattr(worker_process, "_WRITE_S", 0.5)
    made = rig(
        """
        import os

        def bad():
            for name in os.listdir("/proc/self/fd"):
                try:
                    end = os.open(f"/proc/self/fd/{name}", os.O_WRONLY | os.O_NONBLOCK)
                    while os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                        os.write(end, b"x" * 4096)
                except OSError:
                    pass
            return lambda: 1.0
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good")
    assert list(failures(events)) == ["bad"]
    assert "good" in completed(events)


@pytest.mark.parametrize(
    "reply",
    [
        {"affinity": None},
        {"affinity": "0"},
        {"value_s": "fast"},
        {"waited_s": -1.0},
        {"minor_faults": -5},
        {"iterations": 0},
    ],
    ids=str,
)
def test_numbers_that_no_sample_has_fail_the_case(rig, reply):
    made = rig(
        f"""
        from perfguard.worker.pipes import Control
        send = Control.send

        def forged(self, reply, **fields):
            forges = reply == "sample" and fields["case"] == "bad"
            send(self, reply, **({{**fields, **{reply!r}}} if forges else fields))

        def bad():
            Control.send = forged
            return lambda: 1.0
        """,
        IMPATIENT,
    )
    events = made.measure("bad", "good")
    assert list(failures(events)) == ["bad"]
    assert "good" in completed(events)
