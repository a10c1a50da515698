"""A small training step in four files, and ten changes that make its Python and data code slower."""

from __future__ import annotations

from dataclasses import dataclass

FILES = {
    "data.py": '''\
"""Rows of numbers with a text that holds their label."""

import copy
import re

import torch

ROWS = 128


class Rows:
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.values = torch.randn(ROWS, 64, generator=generator)
        self.texts = [f"sample {number:05d} split=train label={number % 10} source=a/b/c" for number in range(ROWS)]

    def __len__(self):
        return ROWS

    def __getitem__(self, number):
        values, text = self.values[number], self.texts[number]
        label = int(text.split("=")[2].split()[0])
        return values, label


def collate(batch):
    values = torch.stack([values for values, _ in batch])
    labels = torch.tensor([label for _, label in batch])
    return values, labels


def normalised(values):
    return values / values.norm(dim=1, keepdim=True)
''',
    "network.py": '''\
"""The network."""

from torch import nn


def network():
    layers = [nn.Linear(64, 256), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(256, 10))
    return model
''',
    "training.py": '''\
"""The step."""

import copy
import json
import logging

import numpy as np
import torch
from torch.nn import functional

from data import ROWS, Rows, collate, normalised
from network import network

log = logging.getLogger("training")
log.addHandler(logging.NullHandler())
log.propagate = False
history = []


def training_step():
    rows, model = Rows(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        values, labels = collate([rows[number] for number in range(ROWS)])
        values = normalised(values)
        outputs = model(values)
        losses = functional.cross_entropy(outputs, labels, reduction="none")
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del history[:]
        return loss.detach()

    return step
''',
    "bench_training.py": '''\
"""The step as a benchmark."""

import perfguard
from training import training_step


@perfguard.benchmark(name="training", phase="step")
def training():
    return training_step()
''',
    "perfguard.toml": """\
benchmarks = ["bench_*.py"]
suite = "training"
threads = 1

[suites.training]
gating = ["training"]
budget_s = 600
""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One change."""

    name: str  # Also in the journal
    doc: str  # What the change does, one line
    file: str
    before: str
    after: str
    ops: tuple[
        str, ...
    ] = ()  # Ops that the change adds; a culprit that names one is right, as Python time at its line is


_UPDATE = "        optimizer.step()\n"
_LABEL = 'label = int(text.split("=")[2].split()[0])'
FAULTS = (
    Fault(
        name="collate",
        doc="a batch is made of lists instead of tensors",
        file="data.py",
        before="values = torch.stack([values for values, _ in batch])",
        after="values = torch.tensor([values.tolist() for values, _ in batch])",
    ),
    Fault(
        name="tolist",
        doc="`.tolist()` of the outputs in each step",
        file="training.py",
        before=_UPDATE,
        after=_UPDATE + "        history.append(outputs.detach().tolist())\n",
    ),
    Fault(
        name="item",
        doc="`.item()` of each row's loss",
        file="training.py",
        before=_UPDATE,
        after=_UPDATE + "        for value in losses:\n            history.append(value.item())\n",
        ops=("item", "select", "_local_scalar_dense", "unbind"),
    ),
    Fault(
        name="hooks",
        doc="a hook on every module that keeps a mean",
        file="network.py",
        before="    return model\n",
        after="    means = []\n"
        "    for module in model.modules():\n"
        "        module.register_forward_hook(lambda _module, _, out: means.append(out.detach().abs().mean().item()))\n"
        "    return model\n",
        ops=("abs", "mean", "item", "_local_scalar_dense"),
    ),
    Fault(
        name="logging",
        doc="norms of all parameters are logged in each step",
        file="training.py",
        before=_UPDATE,
        after=_UPDATE
        + "        log.warning(json.dumps({name: p.norm().item() for name, p in model.named_parameters()}))\n",
        ops=("norm", "linalg_vector_norm", "item", "_local_scalar_dense"),
    ),
    Fault(
        name="format",
        doc="the outputs are formatted in each step",
        file="training.py",
        before=_UPDATE,
        after=_UPDATE + '        history.append(f"outputs {outputs}")\n',
        ops=(
            "masked_select",
            "ne",
            "eq",
            "abs",
            "ceil",
            "unbind",
            "select",
            "item",
            "isfinite",
            "index",
            "stack",
            "cat",
        ),
    ),
    Fault(
        name="numpy",
        doc="a round trip through NumPy in double precision",
        file="training.py",
        before="        values = normalised(values)\n",
        after="        values = torch.as_tensor(np.array(values.numpy().tolist()), dtype=torch.float32)\n"
        "        values = normalised(values)\n",
        ops=("to", "_to_copy", "copy_"),
    ),
    Fault(
        name="rows",
        doc="a loop over rows instead of one op",
        file="data.py",
        before="    return values / values.norm(dim=1, keepdim=True)\n",
        after="    return torch.stack([row / row.norm() for row in values])\n",
        ops=("norm", "linalg_vector_norm", "div", "unbind", "select", "stack", "cat"),
    ),
    Fault(
        name="deepcopy",
        doc="a deep copy of the parameters in each step",
        file="training.py",
        before=_UPDATE,
        after=_UPDATE + "        history.append(copy.deepcopy(model.state_dict()))\n",
        ops=("clone", "copy_", "empty", "set_"),
    ),
    Fault(
        name="regex",
        doc="a regular expression for each row's label",
        file="data.py",
        before=_LABEL,
        after='label = int(re.sub(r"^(?:[^ ]+ )*label=(\\d+).*$", r"\\1", re.sub(r"\\s+", " ", text)))',
    ),
)
