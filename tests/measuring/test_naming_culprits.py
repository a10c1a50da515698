"""Which op got slower, as a user asks for it, on a small training step."""

from __future__ import annotations

import json

import pytest

from tests.tiny_projects import wait_for

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRAIN = """\
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x))


def make_step():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images, labels = torch.randn(32, 64), torch.randint(10, (32,))

    def step():
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    step = make_step()
    for _ in range(int(sys.argv[1])):
        step()
"""
BENCHMARK = """\
import perfguard
from train import make_step


@perfguard.benchmark(name="train", phase="step")
def train():
    return make_step()
"""
CONFIG = """\
benchmarks = ["bench_train.py"]
suite = "train"
max_blocks = 1
samples = 3

[suites.train]
gating = ["train"]
budget_s = 60
"""
UNFUSED = ("fused=True", "fused=False, foreach=False")


@pytest.fixture
def training(empty_project):
    empty_project.write("train.py", TRAIN)
    empty_project.write("bench_train.py", BENCHMARK)
    empty_project.write("perfguard.toml", CONFIG)
    empty_project.git("init", "-q", "-b", "main")
    empty_project.commit("start")
    return empty_project


@pytest.mark.long
def test_the_same_work_executes_nothing_otherwise(training):
    training.replace("train.py", "import sys\n", "import sys  # the same code, another file\n")
    result = training.result("compare", "--no-ops", "--no-progress")
    assert result["op_count_changes"] == {"train": []}
    assert result["attributions"] == []


@pytest.mark.long
def test_a_stored_op_counts_tells_what_changed_since(training):
    update = ("baseline", "update", "--rounds", "2", "--spread", "0", "--allow-unfit", "--allow-few", "--no-progress")
    done = training.run(*update)
    assert done.returncode == 0, done.stderr
    (place,) = (training.path / "baselines").glob("*/train")
    assert "_fused_adam_" in (place / "census.json").read_text(encoding="utf-8")
    training.replace("train.py", *UNFUSED)
    result = training.result("gate", "--baseline", "stored", "--no-progress", PERFGUARD_ROUNDS="2")
    assert any(change["rule"] == "fusion" for change in result["op_count_changes"]["train"])


def test_a_verdict_stands_where_only_the_search_for_culprits_was_interrupted(training):
    training.replace("train.py", *UNFUSED)
    process = training.start("compare", "--ops", "--format", "json", "--no-progress")
    runs = training.path / ".perfguard" / "runs"
    assert wait_for(lambda: any('"final":true' in file.read_text() for file in runs.glob("*/events.jsonl")))
    process.terminate()
    result = json.loads(process.communicate(timeout=300)[0])
    assert (result["verdict"], process.returncode) == ("inconclusive", 4)
    assert result["attributions"] == []
    assert "ops.cut_short" in [note["code"] for note in result["notes"]]


@pytest.mark.long
def test_a_case_and_a_script_are_profiled_alike(training):
    of_case = training.run("profile", "train", "--processes", "1", "--steps", "2", "--format", "json", "--no-progress")
    assert of_case.returncode == 0, of_case.stderr
    of_script = training.run(
        "profile", "--processes", "1", "--steps", "2", "--format", "json", "--no-progress", "train.py", "40"
    )
    assert of_script.returncode == 0, of_script.stderr
    reports = [json.loads(done.stdout)["cases"][0] for done in (of_case, of_script)]
    for report in reports:
        layers = [row for row in report["op_counts"]["rows"] if row["name"] == "aten::addmm"]
        assert {row["phase"] for row in layers} == {"forward"}
        assert sum(row["count"] for row in layers) == 21
        assert sum(piece["share"] for piece in report["breakdown"]["slices"]) == pytest.approx(1.0)
        assert sum(phase["share"] for phase in report["breakdown"]["phases"]) == pytest.approx(1.0)


def test_two_traces_are_compared_without_a_run(training):
    for name in ("before", "after"):
        done = training.run("profile", "train", "--processes", "1", "--steps", "1", "--no-progress")
        assert done.returncode == 0, done.stderr
        (trace,) = training.latest_run().glob("profiles/*/candidate-p0-s0.json.gz")
        (training.path / f"{name}.json.gz").write_bytes(trace.read_bytes())
        if name == "before":
            training.replace("train.py", *UNFUSED)
    diff = training.run("profile", "diff", "before.json.gz", "after.json.gz")
    assert diff.returncode == 0, diff.stderr
    assert "Adam no longer fused" in diff.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("profile", "no.such.case"), 5, "no case matches 'no.such.case'"),
        (("profile", "absent.py"), 2, "absent.py is neither a case nor a file"),
        (("profile", "train.py"), 3, "train.py failed: IndexError"),
        (("profile", "train.py", "2"), 3, "lower --skip"),
        (("profile", "diff", "absent.json", "absent.json"), 2, "absent.json is no file"),
        (("profile", "diff", "perfguard.toml", "perfguard.toml"), 3, "perfguard.toml"),
    ],
)
def test_what_cannot_be_profiled_is_said_in_a_sentence(training, arguments, code, said):
    done = training.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
