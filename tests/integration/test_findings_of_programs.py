"""What rules find in small programs that torch really ran, and that they find nothing in the fixed program."""

from __future__ import annotations

import pytest

from perfguard.profile.advice.advise import advise
from perfguard.records.facts import Severity
from tests.finding_evidence import seen_codes, told
from tests.profiled_programs import evidence_of

pytestmark = pytest.mark.torch

NET = """
import torch
from torch import nn

class Frozen(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("scale", torch.rand(channels) + 0.5)
        self.register_buffer("shift", torch.rand(channels))

    def forward(self, x):
        return x * self.scale.reshape(1, -1, 1, 1) + self.shift.reshape(1, -1, 1, 1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.body = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = self.body(x).relu()
        return self.head(x.flatten(2).mean(2))

FORMAT = torch.channels_last
model = Net().to(memory_format=FORMAT)
images = torch.randn(4, 3, 64, 64).contiguous(memory_format=FORMAT)
labels = torch.randint(0, 10, (4,))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), fused=True)

def step():
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
"""


def changed(*replacements):
    """The program with parts of it replaced."""
    source = NET
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    return source


def found(source, folder, **more):
    return {finding.id: finding for finding in advise(evidence_of(source, folder, **more))}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    pytest.importorskip("torch")
    return found(NET, tmp_path_factory.mktemp("healthy"), threads=1, cpus=1)


@pytest.fixture(autouse=True)
def _torch():
    pytest.importorskip("torch")


def test_a_healthy_program_is_left_alone(healthy):
    known = {
        "layout-lost",
        "channels-last-untried",
        "unfused-optimizer",
        "frozen-backward",
        "frozen-backward-for-norms",
        "unused-weight-gradients",
        "frozen-batch-norm",
    }
    known |= {
        "reference-kernel",
        "slow-convolution",
        "double-precision",
        "casts",
        "primitive-cache-misses",
        "low-precision-loss",
        "threads",
    }
    assert known.isdisjoint(healthy)


def test_a_contiguous_in_a_channels_last_model_loses_the_layout(tmp_path):
    findings = found(changed(("self.body(x)", "self.body(x.contiguous())")), tmp_path)
    finding = findings["layout-lost"]
    assert told(finding, "lost", "convolutions") == (1, 2)
    assert finding.subject.op == "Net.body"
    assert "aten::copy_" in {key.op for key in finding.ops}


def test_a_contiguous_model_may_try_channels_last(tmp_path):
    findings = found(changed(("FORMAT = torch.channels_last", "FORMAT = torch.contiguous_format")), tmp_path)
    assert told(findings["channels-last-untried"], "convolutions") == 2
    assert "layout-lost" not in findings


def test_a_gradient_that_comes_back_contiguous_mixes_layouts_until_it_is_hooked(tmp_path, healthy):
    finding = healthy["mixed-layouts"]
    assert {key.op for key in finding.ops} == {"aten::threshold_backward"}
    hook = "x.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))"
    fixed = changed(("        return self.head(", f"        {hook}\n        return self.head("))
    assert "mixed-layouts" not in found(fixed, tmp_path)


def test_a_plain_optimizer_is_not_fused(tmp_path):
    finding = found(changed(("fused=True", "fused=False"), ("32, 3,", "8, 3,"), ("(32", "(8")), tmp_path)[
        "unfused-optimizer"
    ]
    assert told(finding, "optimizer", "is_foreach") == ("Adam", False)
    assert "addcdiv_" in told(finding, "ops")


def test_foreach_is_no_fusion_on_cpus(tmp_path):
    finding = found(changed(("fused=True", "foreach=True"), ("32, 3,", "8, 3,"), ("(32", "(8")), tmp_path)[
        "unfused-optimizer"
    ]
    assert told(finding, "optimizer", "is_foreach") == ("Adam", True)


def test_layers_that_no_optimizer_holds_compute_backward_for_nobody(tmp_path):
    source = changed(("model.parameters()", "[*model.body.parameters(), *model.head.parameters()]"))
    finding = found(source, tmp_path)["frozen-backward"]
    assert finding.seen[0].values["modules"] == ("Net.stem", "Net.norm")
    assert finding.severity is not Severity.GRAVE


def test_an_input_with_a_gradient_keeps_frozen_layers_in_backward(tmp_path):
    freeze = "model.stem.requires_grad_(False); model.norm.requires_grad_(False)\nimages = "
    frozen = changed(("images = ", freeze))
    leaking = frozen.replace("(memory_format=FORMAT)\nlabels", "(memory_format=FORMAT).requires_grad_()\nlabels")
    assert leaking != frozen
    for name, source, is_found in (("frozen", frozen, False), ("leaking", leaking, True)):
        folder = tmp_path / name
        folder.mkdir()
        assert ("frozen-backward" in found(source, folder)) is is_found


def test_a_forgotten_norm_keeps_frozen_layers_in_backward(tmp_path):
    source = changed(
        ("self.body = ", "self.middle = nn.Conv2d(32, 32, 3, padding=1)\n        self.body = "),
        ("self.body(x)", "self.body(self.middle(x))"),
        ("images = ", "model.stem.requires_grad_(False); model.middle.requires_grad_(False)\nimages = "),
    )
    finding = found(source, tmp_path)["frozen-backward-for-norms"]
    assert seen_codes(finding) == ["layers", "norms"]
    assert told(finding, "modules") == ("Net.norm",)


def test_a_frozen_norm_that_is_written_out_is_found_with_its_class(tmp_path):
    finding = found(
        changed(("nn.BatchNorm2d(32)", "Frozen(32)"), ("Conv2d(32, 32, 3, padding=1)", "Conv2d(32, 32, 1)")), tmp_path
    )["frozen-batch-norm"]
    assert told(finding, "modules", "kinds") == (1, ("Frozen",))
    assert finding.subject.op == "Net.norm"


def test_denormal_weights_are_counted(tmp_path):
    source = changed(
        ("images = ", "nn.init.constant_(model.body.weight, 1e-41)\nimages = "), ("fused=True", "fused=True, lr=0.0")
    )
    finding = found(source, tmp_path)["denormals"]
    assert finding.seen[0].values["worst"] == "Net.body.weight"


def test_double_precision_is_found_where_it_slips_in(tmp_path):
    source = changed(("self.body(x).relu()", "(self.body(x).double() * 1.5).relu().float()"))
    assert "aten::mul" in {key.op for key in found(source, tmp_path)["double-precision"].ops}


def test_a_loss_reduced_in_bf16_is_found(tmp_path):
    source = changed(("criterion(model(images), labels)", "model(images).bfloat16().square().sum()"))
    assert told(found(source, tmp_path)["low-precision-loss"], "ops") == ("sum (bf16)",)


def test_a_small_primitive_cache_misses_in_every_step(tmp_path, healthy):
    evidence = evidence_of(NET, tmp_path, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0"})
    if not evidence.primitives:
        pytest.skip("this torch was built without oneDNN")
    assert "primitive-cache-misses" in {finding.id for finding in advise(evidence)}


def test_convolutions_without_onednn_are_found(tmp_path):
    source = changed(("def step():", "torch.backends.mkldnn.enabled = False\n\ndef step():"))
    finding = found(source, tmp_path)["slow-convolution"]
    assert finding.severity is Severity.GRAVE


def test_many_tiny_ops_are_a_fragmented_step(tmp_path):
    loss = "loss = criterion(model(images), labels)"  # what is added to its copy has no backward pass
    loop = f"{loss}\n    copy = loss.detach()\n    for _ in range(3000):\n        copy = copy + 0.001"
    source = changed((loss, loop), ("64, 64", "8, 8"))
    assert found(source, tmp_path)["fragmented-trace"].seen[1].values["phase"] == "loss"
