"""How long gates of pull requests take that touch one of three models, with and without `untouched` cases.

`make proof-untouched`: a quarter of an hour, nothing else running. A repository with a convolutional network, a
language model and a perceptron gets a harmless change in one of them; its gate is measured with `--measure-all` and
without, in turns. Prints a Markdown table; `-o FILE` writes it as well. Ends with 1 where another case than the changed
one was measured, a gate was red, or the median time is not at most half.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perfguard.host.identity import machine_line
from perfguard.host.probe import probe

MODELS = ("convolutional", "language", "perceptron")
_NETWORK = {
    "convolutional": "nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), "
    "nn.Flatten(), nn.LazyLinear(10))",
    "language": "nn.Sequential(nn.Embedding(512, 128), nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, "
    "batch_first=True), nn.Flatten(), nn.LazyLinear(10))",
    "perceptron": "nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))",
}
_INPUTS = {
    "convolutional": "torch.randn(16, 3, 32, 32)",
    "language": "torch.randint(0, 512, (16, 32))",
    "perceptron": "torch.randn(128, 512)",
}
_MODULE = """\
import torch
from torch import nn


def network():
    return {network}


def inputs():
    return {inputs}


def loss_of(model, images, labels):
    outputs = model(images)
    return nn.functional.cross_entropy(outputs, labels)
"""
_BENCHMARKS = """\
import importlib

import perfguard
import torch


def step_of(name):
    module = importlib.import_module("models." + name)
    images = module.inputs()
    model, labels = module.network(), torch.arange(len(images)) % 10
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step():
        optimizer.zero_grad()
        loss = module.loss_of(model, images, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


@perfguard.benchmark(name="models.convolutional", phase="step")
def convolutional():
    return step_of("convolutional")


@perfguard.benchmark(name="models.language", phase="step")
def language():
    return step_of("language")


@perfguard.benchmark(name="models.perceptron", phase="step")
def perceptron():
    return step_of("perceptron")
"""
_CONFIG = 'benchmarks = ["bench_models.py"]\nsuite = "models"\n[suites.models]\ngating = ["models.*"]\nbudget_s = 300\n'
_BEFORE, _AFTER = (
    "    outputs = model(images)\n    return",
    "    logits = model(images)\n    outputs = logits\n    return",
)


def git(folder: Path, *arguments: str) -> None:
    """Run git as somebody."""
    identity = ("-c", "user.name=proof", "-c", "user.email=proof@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def make_repository(folder: Path) -> None:
    """Three models, a benchmark of each, one commit."""
    (folder / "models").mkdir()
    (folder / "models" / "__init__.py").write_text("", encoding="utf-8")
    for name in MODELS:
        text = _MODULE.format(network=_NETWORK[name], inputs=_INPUTS[name])
        (folder / "models" / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "bench_models.py").write_text(_BENCHMARKS, encoding="utf-8")
    (folder / "perfguard.toml").write_text(_CONFIG, encoding="utf-8")
    (folder / ".gitignore").write_text(".perfguard/\n__pycache__/\n", encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "three models")


def gate(folder: Path, *options: str) -> tuple[float, dict[str, Any]]:
    """Wall seconds and result of a gate of the working tree."""
    began = time.monotonic()
    command = [sys.executable, "-m", "perfguard", "gate", "--baseline", "git:HEAD", "--format", "json", "-q", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return time.monotonic() - began, json.loads(done.stdout)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make proof-untouched", description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows, ratios, is_good = [], [], True
    folder = Path(tempfile.mkdtemp(prefix="perfguard-untouched-"))
    make_repository(folder)
    for number, name in enumerate(MODELS):
        path = folder / "models" / f"{name}.py"
        path.write_text(path.read_text(encoding="utf-8").replace(_BEFORE, _AFTER), encoding="utf-8")
        order = [("--measure-all",), ()] if number % 2 else [(), ("--measure-all",)]
        found = {options: gate(folder, *options) for options in order}
        (short_s, short), (long_s, long) = found[()], found["--measure-all",]
        outcomes = {verdict["case_id"]: verdict["outcome"] for verdict in short["gate"]["verdicts"]}
        measured = [case_id for case_id, outcome in outcomes.items() if outcome != "untouched"]
        is_good &= measured == [f"models.{name}"] and 1 not in (short["exit_code"], long["exit_code"])
        ratios.append(short_s / long_s)
        rows.append(
            f"| {name} | {outcomes[f'models.{name}']} | {short['verdict']}, {short_s:.0f} s | {long['verdict']}, "
            f"{long_s:.0f} s | {ratios[-1]:.2f} |"
        )
        git(folder, "checkout", "-q", ".")
    host = probe()
    lines = [
        f"Measured on {machine_line(host)} (`{host.machine_id}`).",
        "",
        "| change in | its case | gate | gate with `--measure-all` | time |",
        "|---|---|---|---|--:|",
        *rows,
        "",
        f"Median: {statistics.median(ratios):.2f} of the time; the other cases were untouched.",
    ]
    print("\n".join(lines))
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.rmtree(folder)
    sys.exit(0 if is_good and statistics.median(ratios) <= 0.5 else 1)


if __name__ == "__main__":
    main()
