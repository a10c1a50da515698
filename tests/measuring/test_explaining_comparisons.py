"""What a gate says beside its verdict, on a small training step whose optimizer is no longer fused.

The machine has no baseline; another one, whose libraries choose from the same instruction sets, has.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from perfguard.host.probe import probe
from perfguard.recordings import schema_of
from tests.conftest import Project, clean_environment
from tests.op_count_rows import counts, ops
from tests.stored_baselines import record

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRAIN = """\
import torch
from torch import nn

import perfguard


@perfguard.benchmark(name="train", phase="step")
def train():
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)], nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images, labels = torch.randn(32, 64), torch.randint(10, (32,))

    def step():
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
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
ELSEWHERE = "intel-elsewhere-1"


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A project whose last commit is fused and whose working tree is not."""
    place = tmp_path_factory.mktemp("training")
    project = Project(path=place / "project", environment=clean_environment(place / "home"))
    project.path.mkdir()
    project.write("bench_train.py", TRAIN)
    project.write("perfguard.toml", CONFIG)
    isa = probe().isa.onednn
    counted = counts(ops("conv2d", 3), case_id="train", isa_class=isa.level if isa is not None else "unknown")
    record(project.path, ELSEWHERE, counted, suite="train")
    project.git("init", "-q", "-b", "main")
    project.commit("start")
    project.replace("bench_train.py", "fused=True", "fused=False, foreach=False")
    return project


@pytest.fixture(scope="module")
def gated(training):
    return training.result("gate", "--ops", "--no-progress")


def fits(written, name):
    Draft202012Validator(schema_of(name)).validate(written)


def test_an_optimizer_that_is_no_longer_fused_is_named_with_its_line(training, gated):
    (attribution,) = gated["attributions"]
    culprit = attribution["culprits"][0]
    assert culprit["fact"]["code"] == "optimizer.unfused"
    assert culprit["fact"]["subject"]["place"].startswith("bench_train.py:")
    (change,) = [one["fact"] for one in gated["op_count_changes"]["train"] if one["rule"] == "fusion"]
    assert culprit["fact"]["values"] == change["values"]
    assert culprit["phase"] == "optimizer"
    balance = attribution["balance"]
    parts = sum(balance[part] for part in ("ops_s", "python_s", "idle_s", "unexplained_s"))
    assert balance["delta_s"] == pytest.approx(parts)
    assert "Adam no longer fused" in training.run("show", gated["run_id"]).stdout
    kept = Path(gated["folder"]) / "profiles"
    assert list(kept.glob("*/baseline-joined.log"))
    steps = [len(list(kept.glob(f"*/candidate-p{process}-*.json.gz"))) for process in range(4)]
    assert all(4 <= traced <= 10 for traced in steps)


def test_advice_on_what_only_the_candidate_does_stands_beside_the_culprit(training, gated):
    advice = {finding["code"]: finding for finding in gated["findings"]["train"]}
    finding = advice["advice.unfused_optimizer"]
    assert finding["seen"]
    assert "perfguard compare" in finding["command"]
    shown, markdown = (training.run("show", gated["run_id"], "--format", form).stdout for form in ("table", "md"))
    assert "[unfused-optimizer]" in shown
    assert "Advice on what the candidate does in `train`" in markdown


def test_the_op_counts_of_another_machine_is_compared_and_said_so(gated):
    assert any(change["rule"] == "fusion" for change in gated["op_count_changes"]["train"])
    ops = [change["fact"]["values"].get("ops") or () for change in gated["stored_op_count_changes"]["train"]]
    assert any("conv2d" in names for names in ops)
    (values,) = [note["values"] for note in gated["notes"] if note["code"] == "ops.compared_with_machine"]
    assert (values["machine_id"], values["changed"], values["cases"]) == (ELSEWHERE, 1, 1)


def test_what_is_written_of_an_explained_gate_fits_the_published_schemas(gated):
    fits(gated, "result")
    events = (Path(gated["folder"]) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert any('"event":"ops_compared"' in line for line in events)
    for line in events:
        fits(json.loads(line), "events")
