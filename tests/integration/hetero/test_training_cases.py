"""Heterogeneous training as a case: what a broken part of it changes, by worker, device and phase."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest

from perfguard.records.plan import CasePlan
from perfguard.records.run import Arm
from perfguard.records.spec import Case, Phase
from tests.broken_trainings import LOST_REPORT, SKEWED_POLICY, SLOW_WORKER, WRONG_MERGE, broken, copy_tree
from tests.changed_values import replace
from tests.real_workers import measure, starter_in
from tests.worker_rigs import SETTINGS, failures

pytestmark = [
    pytest.mark.torch,
    pytest.mark.two_cpus,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two CPUs"),
]
CPUS = tuple(sorted(os.sched_getaffinity(0))[:2])

RUN = """
import json
import torch
from perfguard.benchmarks import hetero

if __name__ == "__main__":
    torch.manual_seed(1)
    training = hetero.covtype(algorithm="adaptive")
    results = [training() for _ in range(3)]
    print(json.dumps({"results": results, "signals": training.signals(), "check": training.check()}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of perfguard with a script that trains three times."""
    folder = tmp_path_factory.mktemp("tree")
    copy_tree(folder)
    (folder / "trained.py").write_text(RUN)
    return folder


def outcome(tree, change=None, script="trained.py"):
    with broken(tree, change) if change else contextlib.nullcontext():
        command = [sys.executable, "-B", script]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def sound(tree):
    return outcome(tree)


def test_a_training_says_what_each_worker_did(sound):
    signals = sound["signals"]
    assert signals["update_share of cpu"] + signals["update_share of large"] == pytest.approx(1)
    assert signals["late_share of cpu-0 (CPU)"] == signals["late_share of large-0 (CPU)"] == 0
    assert {name for name in signals if name.endswith("of large-0 (CPU)")} >= {
        "train_s of large-0 (CPU)",
        "loss_s of large-0 (CPU)",
        "transfer_s of large-0 (CPU)",
    }
    assert 3 <= signals["epochs"] < 100
    assert len(set(sound["results"])) == 1
    assert set(sound["check"]) == {"update of cpu (CPU)", "merge of large (CPU)"}


@pytest.mark.long
def test_a_slow_worker_shows_in_its_own_training_time(sound, tree):
    slow = outcome(tree, SLOW_WORKER)["signals"]
    name = "train_s of cpu-0 (CPU)"
    assert slow[name] - sound["signals"][name] > 0.9 * 0.005 / 128  # the spin over the most examples of an update
    assert slow["train_s of large-0 (CPU)"] < 0.5 * slow[name]


@pytest.mark.long
def test_a_lost_message_shows_as_time_in_which_its_worker_is_late(tree):
    lost = outcome(tree, LOST_REPORT)["signals"]
    assert 0.1 < lost["late_share of large-0 (CPU)"] < 1
    assert lost["late_share of cpu-0 (CPU)"] == 0


SIMULATE = """
import json
from perfguard.benchmarks.hetero import _config
from perfguard.hetero.planning import places
from perfguard.hetero.simulated import simulated
from perfguard.hetero.simulator import Speed

config = _config("covtype", "adaptive")
speeds = {"cpu": Speed(example_s=3e-6, update_s=1e-4), "large": Speed(example_s=3e-6, update_s=1e-4)}
print(json.dumps(dict(simulated(config, places(config, (0, 1)), config.data.examples, speeds).shares)))
"""
"""Shares of updates at given speeds: how fast real workers are hangs on what else runs."""


def test_a_skewed_balance_shows_in_the_shares_of_updates(tree):
    (tree / "simulated.py").write_text(SIMULATE)
    sound = outcome(tree, script="simulated.py")
    skewed = outcome(tree, SKEWED_POLICY, script="simulated.py")
    assert skewed["cpu"] > sound["cpu"] + 0.1


def test_a_broken_merge_shows_in_the_check_and_leaves_updates_alone(sound, tree):
    broken = outcome(tree, WRONG_MERGE)["check"]
    assert broken["merge of large (CPU)"] > 1.5 * sound["check"]["merge of large (CPU)"]
    assert broken["update of cpu (CPU)"] == sound["check"]["update of cpu (CPU)"]


def test_a_workers_own_signals_reach_the_recording(tmp_path):
    case = Case(
        benchmark="hetero.covtype",
        target="perfguard.benchmarks.hetero:covtype",
        parameters=(("algorithm", "hogbatch"),),
        phase=Phase.STEP,
    )
    starter = starter_in(tmp_path, replace(SETTINGS, max_blocks=1), cpus=CPUS)
    plan = CasePlan(case=case, inner_loops=1, iteration_s=0.5)
    finished, events = measure(starter, [plan], [Arm.CANDIDATE])
    assert (finished, failures(events)) == (1, {})
    own = [event.own for event in events if getattr(event, "own", None)]
    assert all(each["update_share of large"] > 0 for each in own)
    assert len(own) >= SETTINGS.samples
