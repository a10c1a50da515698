"""A distribution with backends that misbehave, for tests: written into a folder that is then on PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

_MODULE = '''
import os
import signal
import subprocess
import sys
import time

import numpy as np

from perfguard.tasks.child.backends import Loaded, RefusedError, eager

AFTER = 70  # Answers before it misbehaves: the first examples and the warm-up are answered


def misbehaving(what, after=AFTER):
    def load(order):
        found, count = eager.load(order), [0]

        def run(batch):
            count[0] += 1
            if count[0] > after:
                what()
            return found.run(batch)

        return Loaded(run=run, ran_in=found.ran_in, version="1")

    return load


def fail():
    raise ValueError("no more of this")


raising = misbehaving(fail)
killed = misbehaving(lambda: os.kill(os.getpid(), signal.SIGSEGV))
leaving = misbehaving(lambda: os._exit(7))
hanging = misbehaving(lambda: time.sleep(1000))


def refusing(order):
    raise RefusedError("not on this CPU")


def lying(order):
    """Says FP32 and computes in BF16."""
    from tests.changed_values import replace
    from perfguard.records.tasks import (ModelPrecision)

    return replace(eager.load(replace(order, precision=ModelPrecision.BF16)), ran_in="fp32")


def two_faced(order):
    """Answers as it should to the first queries and in accuracy mode, and nonsense for the rest of the time."""
    frame = sys._getframe()
    while "job" not in frame.f_locals:
        frame = frame.f_back
    is_timed, found, count = frame.f_locals["job"].mode.value == "performance", eager.load(order), [0]

    def run(batch):
        count[0] += 1
        answers = found.run(batch)
        return tuple(np.full_like(each, np.nan) for each in answers) if is_timed and count[0] > AFTER else answers

    return Loaded(run=run, ran_in="fp32", version="1")


def spawning(order):
    """Starts a program and leaves it."""
    with open(os.environ["SPAWNED"], "w") as file:
        file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
    return eager.load(order)


def caching(order):
    """Keeps its answers."""
    found, kept = eager.load(order), {}

    def run(batch):
        key = batch.tobytes()
        time.sleep(0.0005 if key in kept else 0.003)
        if key not in kept:
            kept[key] = found.run(batch)
        return kept[key]

    return Loaded(run=run, ran_in="fp32", version="1")


def slower(order):
    """Takes 5 % longer for each answer."""
    found = eager.load(order)

    def run(batch):
        began = time.perf_counter()
        answer = found.run(batch)
        until = began + 1.05 * (time.perf_counter() - began)
        while time.perf_counter() < until:
            pass
        return answer

    return Loaded(run=run, ran_in="fp32", version="1")

'''
_NAMES = ("raising", "killed", "leaving", "hanging", "refusing", "lying", "two_faced", "spawning", "caching", "slower")


def write_backends(folder: Path) -> None:
    """Make a module and its entry points."""
    (folder / "misbehaving_backends.py").write_text(_MODULE, encoding="utf-8")
    about = folder / "misbehaving-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n", encoding="utf-8")
    entries = "\n".join(f"{name} = misbehaving_backends:{name}" for name in _NAMES)
    (about / "entry_points.txt").write_text(f"[perfguard.task_backends]\n{entries}\n", encoding="utf-8")
