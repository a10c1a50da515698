"""A history with a step by the code, one by the machine, two software stacks and two machines; and a server of it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np

from perfguard.history.recording import add_run
from perfguard.host.probe import probe
from perfguard.records.history import CaseRecord, MeasuredCode, RunRecord
from tests.changed_values import replace

PROJECT = "team/nets"
STARTED, DAY_S = 1_790_000_000.0, 86_400.0
CASE, STEADY = "step.resnet50[batch=8]", "step.bert[batch=4]"
MACHINES = ("intel-icelake", "amd-zen3")
RUNS, STEP_AT = 60, 40


def commit(number):
    return f"{number + 16:02x}" * 20


def a_record(number, machine, *, project=PROJECT, cases=(CASE, STEADY)):
    """The run of a commit on a machine; the first case takes 5 % longer from the fortieth on, on the first machine."""
    random = np.random.default_rng([number, MACHINES.index(machine)])
    slower = 1.05 if number >= STEP_AT and machine == MACHINES[0] else 1.0
    stack = "torch-2.12" if number < 20 else "torch-2.13"
    measured = tuple(
        CaseRecord(
            case_id=case_id, spread_ratio=0.004, blocks=7,
            median_s=float(0.04 * (slower if case_id == CASE else 0.5) * np.exp(random.normal(0, 0.003))),
        )
        for case_id in cases
    )  # fmt: skip
    return RunRecord(
        project=project, run_id=f"run-{machine}-{number:03d}", started_at=STARTED + number * DAY_S, mode="rounds",
        suite="quick", machine_id=machine, outcome="measured", exit_code=0,
        candidate=MeasuredCode(source_id=commit(number), stack_id=stack, commit=commit(number)), cases=measured,
    )  # fmt: skip


def filled(database, *, runs=RUNS):
    """The history in a database."""
    found = probe()
    for machine in MACHINES:
        for number in range(runs):
            stack = a_record(number, machine).candidate.stack_id
            known = replace(found, machine_id=machine, stack_id=stack) if number in (0, 20) else None
            add_run(database, a_record(number, machine), fingerprint=known)
    return database


@contextlib.contextmanager
def served(project, *arguments):
    """`perfguard serve` of a project; its address."""
    with socket.socket() as probe_:
        probe_.bind(("127.0.0.1", 0))
        port = probe_.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "perfguard", "serve", "--port", str(port), *arguments],
        cwd=project.path, env=project.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(process.stderr.read())
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=300)
