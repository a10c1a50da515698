"""`perfguard hetero train`: from the command to the result, its exit codes, and going on from a run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.torch

SETTINGS = """
learning_rate = 0.1
epochs = 2
algorithm = "cpu"
[data]
source = "rows.libsvm"
[model]
width = 8
[groups.cpu]
kind = "hogwild"
batch = 8
workers = 1
[groups.large]
kind = "replica"
batch = 32
"""

FULL_BEYOND_16 = """
import torch


class Small(torch.nn.Linear):
    def forward(self, inputs):
        rows = inputs[1].numel() if isinstance(inputs, tuple) else len(inputs)
        if rows > 16:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        dense = torch.zeros(rows, self.in_features)
        return super().forward(dense)


def make(features, classes):
    return Small(features, classes)
"""


ROWS = "algorithm = 'cpu'\n[data]\nsource = './rows.libsvm'\n"
BROKEN = {
    "folder": ("[data]\nsource = './.'\n", "kind = 'hogwild'\nbatch = 8\n"),
    "many": (ROWS, "kind = 'hogwild'\nbatch = 8\nworkers = 100_000\n"),
    "kind": (ROWS, "kind = 'hog'\n"),
    "limits": (ROWS, "kind = 'hogwild'\nbatch = 64\nminimum = 512\nmaximum = 128\n"),
}


@pytest.fixture
def training(empty_project):
    rows = "".join(f"{n % 2} 1:{n % 2} 2:{(n * 7) % 5}\n" for n in range(200))
    empty_project.write("rows.libsvm", rows)
    empty_project.write("train.toml", SETTINGS)
    for name, line in BROKEN.items():
        empty_project.write(f"{name}.toml", f"learning_rate = 0.1\nepochs = 2\n{line[0]}[groups.cpu]\n{line[1]}")
    return empty_project


def trained(project, *arguments, code=0):
    done = project.run("hetero", "train", *arguments, "-q", "--format", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_file_is_trained_on_and_the_run_is_shown_again_and_gone_on_from(training):
    found = trained(training, "train.toml", "--algorithm", "hogbatch")
    assert [epoch["epoch"] for epoch in found["epochs"]] == [0, 1, 2]
    assert (found["trained"]["examples"], found["trained"]["features"]) == (200, 2)
    assert sum(each["trained"] for each in found["outcome"]["counters"].values()) == 400
    assert found["epochs"][2]["loss"] < found["epochs"][0]["loss"]
    shown = training.run("show", "--format", "json")
    assert (shown.returncode, json.loads(shown.stdout)["epochs"]) == (0, found["epochs"])
    balances = json.loads(training.run("hetero", "simulate", "--format", "json").stdout)
    assert balances["live"]["shares"].keys() == balances["simulated"]["shares"].keys() == {"cpu", "large"}
    assert balances["live"]["epoch_s"] > 0
    refused = training.run("hetero", "train", "train.toml", "--examples", "4")
    assert refused.returncode == 2
    assert training.run("hetero", "simulate").stdout.splitlines()[1].endswith(f"by run {found['run_id']}")
    written = training.run("report", "-o", "report.html")
    assert written.returncode == 0, written.stderr
    assert "Loss by seconds of training" in (training.path / "report.html").read_text(encoding="utf-8")
    done = training.run("hetero", "train", "--resume")
    assert done.returncode == 2
    assert "the run has already made 2 epochs, and they count; give --epochs with more than that" in done.stderr
    again = trained(training, "--resume", "--epochs", "3")
    assert again["trained"]["resumed_epoch"] == 2
    assert [epoch["epoch"] for epoch in again["epochs"]] == [3]


@pytest.mark.long
def test_the_target_decides_about_the_exit_code(training):
    assert trained(training, "train.toml", "--target-loss", "0.9")["outcome"]["ending"] == "target"
    missed = trained(training, "train.toml", "--target-loss", "1e-9", code=1)
    assert [reason["code"] for reason in missed["reasons"]] == ["training.target_missed"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give one of CONFIG, --preset or --resume"),
        (("--preset", "covtpe"), 2, "did you mean 'covtype'"),
        (("train.toml", "--algorithm", "adaptiv"), 2, "did you mean 'adaptive'"),
        (("train.toml", "--device", "gpu"), 2, "write auto, cpu, cuda, or emulated:30"),
        (("train.toml", "--epochs", "0"), 2, "epochs = 0: give 1 or more"),
        (("train.toml", "--examples", "4"), 2, "the smallest batch of cpu, 8, is larger than the data (4 examples)"),
        (("--resume",), 3, "no training is in"),
        (("train.toml", "--algorithm", "cpu", "--device", "cpu"), 2, "trains without replicas"),
        (("train.toml", "--listen", "127.0.0.1:29557"), 2, "no group that takes part has is_remote = true"),
        (("train.toml", "--listen", "foo"), 2, "write HOST:PORT"),
        (("absent.toml",), 2, "absent.toml cannot be read"),
        (("folder.toml",), 2, "is a folder; name a file in it"),
        (("many.toml",), 3, "give the groups fewer workers"),
        (("kind.toml",), 2, "kind.toml: groups.cpu"),
        (("limits.toml",), 2, "groups.cpu: batch = 64, minimum = 512, maximum = 128"),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_sentence(training, arguments, code, message):
    done = training.run("hetero", "train", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("simulate",), 3, "no training is in"),
        (("simulate", "--computer", "uc-mercd"), 2, "did you mean 'uc-merced'"),
        (("simulate", "--computer", "aws-p3", "--preset", "digits"), 2, "a computer of the paper trains on covtype"),
        (("simulate", "--preset", "w8a"), 2, "--preset belongs to --computer"),
        (("work", "nowhere"), 2, "write HOST:PORT"),
        (("work", "nowhere.invalid:29500"), 2, "no host is known as 'nowhere.invalid'"),
    ],
)
def test_what_cannot_be_simulated_or_joined_is_said_in_a_sentence(training, arguments, code, message):
    done = training.run("hetero", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_computer_of_the_paper_is_simulated(training):
    how = ("--computer", "uc-merced", "--preset", "delicious", "--epochs", "1", "--format", "json")
    shares = {}
    for algorithm in ("hogbatch", "adaptive"):
        done = training.run("hetero", "simulate", *how, "--algorithm", algorithm)
        assert done.returncode == 0, done.stderr
        shares[algorithm] = json.loads(done.stdout)["simulated"]["shares"]["cpu"]
    assert shares["adaptive"] < shares["hogbatch"]


def test_a_corrupt_line_is_named_by_its_number(training):
    training.write("rows.libsvm", "1 1:1\n0 1:1\n0 1=1\n")
    done = training.run("hetero", "train", "train.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "rows.libsvm:3: not a line of this format: '0 1=1'" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a process a shared memory of its own")
def test_a_model_that_does_not_fit_into_shared_memory_is_said_with_both_sizes(training, outside_memory):
    command = [sys.executable, "-m", "perfguard", "hetero", "train", "--preset", "covtype", "--examples", "2000"]
    small = f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {shlex.join(command)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", small],
        cwd=outside_memory, env=training.environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "the model needs 1.2 MB of shared memory, and /dev/shm has 1.0 MB left; make it larger" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_an_accelerator_without_memory_left_is_lost_and_the_others_train_on(training):
    training.write("my_net.py", FULL_BEYOND_16)
    settings = SETTINGS.replace("width = 8", 'factory = "my_net:make"').replace("batch = 32", "batch = 32\nworkers = 1")
    training.write("train.toml", settings.replace('algorithm = "cpu"', 'algorithm = "hogbatch"\nloss_batch = 16'))
    found = trained(training, "train.toml")
    notes = {note["code"]: note["values"] for note in found["notes"]}
    assert notes["training.worker_lost"]["worker"] == "large-0"
    reason = "out of memory on its device, on 32 examples; lower its group's batch and maximum"
    assert notes["training.worker_lost"]["reason"] == reason
    assert sum(each["trained"] for each in found["outcome"]["counters"].values()) == 400


def test_an_interrupted_run_keeps_its_epochs_and_leaves_no_process(training):
    process = training.start("hetero", "train", "train.toml", "--epochs", "1000000")
    events = _events_after(training, '"training_epoch"', process)
    started = _descendants(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert '"outcome":"asked"' in events.read_text(encoding="utf-8")
    assert (events.parent / "checkpoint.pt").exists()
    assert len(started) >= 2
    assert _are_gone(started)


def test_a_killed_run_takes_its_processes_along(training):
    process = training.start("hetero", "train", "train.toml", "--epochs", "1000000")
    _events_after(training, '"training_epoch"', process)
    started = _descendants(process)
    process.kill()
    process.communicate(timeout=300)
    assert len(started) >= 2
    assert _are_gone(started)
    shown = training.run("show")
    assert shown.returncode == 3
    assert "the run was cut off" in shown.stdout


def _events_after(project, text, process):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr.read()
        for events in project.path.glob(".perfguard/runs/*/events.jsonl"):
            if text in events.read_text(encoding="utf-8"):
                return events
        time.sleep(0.1)
    raise AssertionError(f"no event {text} in time")


def _descendants(process):
    return psutil.Process(process.pid).children(recursive=True)


def _are_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=300)
    return [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
