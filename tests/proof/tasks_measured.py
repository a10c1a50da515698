"""What runs of tasks come to on this machine: false alarms, a small slowdown, matrices, run sizes, LoadGen's own time.

`make proof-tasks`: an hour and a half, nothing else running; resumes. It wants `perfguard task fetch
ssd-mobilenetv2` before. Writes `docs/measurements/tasks-<machine_id>.md`; `--only NAME` measures one part. Ends with 1
where more than one of 20 comparisons of equal cells is red, or a slowdown of 5 % is not found.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from scipy.stats import kendalltau

from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from tests.task_backends import write_backends
from tests.task_records import FAST

REPOSITORY = Path(__file__).parents[2]
EQUAL_RUNS = 20
_LONGER = FAST.replace("min_queries = 64", "min_queries = 512").replace("min_s = 0.3", "min_s = 0.5")
Found = dict[str, Any]


def task(folder: Path, *arguments: str) -> Found:
    """The result of one run, and how long it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "perfguard", "task", *arguments, "-q", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: Found = json.loads(done.stdout)
    return {**found, "took_s": time.monotonic() - began}


def scores(found: Found) -> dict[str, float]:
    """By cell; without those that have none."""
    return {name_of(cell): cell["score"] for cell in found["cells"] if cell["score"] is not None}


def name_of(cell: Found) -> str:
    """`onnxruntime-int8-1`."""
    about = cell["cell"]
    return f"{about['backend']}-{about['precision']}-{about['threads']}" + ("" if about["copy"] == 1 else "#2")


def equal_cells(folder: Path, known: Found) -> None:
    """Comparisons of a cell with itself; one is red where its interval leaves out 1."""
    rows = known.setdefault("rows", [])
    if len(rows) < EQUAL_RUNS:
        found = task(folder, "compare", "./fast.toml", "-b", "eager,eager", "--rounds", "5", "--part", "tiny")
        rows.append(found["cells"][1]["over_reference"])


def slower_cell(folder: Path, known: Found) -> None:
    """A backend that takes 5 % longer for each answer, against the one that it wraps."""
    rows = known.setdefault("rows", [])
    if len(rows) < 3:
        found = task(folder, "compare", "./fast.toml", "-b", "eager,slower", "--rounds", "15", "--part", "tiny")
        rows.append(found["cells"][1]["over_reference"])


def matrix(name: str, backends: str, precisions: str) -> Callable[[Path, Found], None]:
    """Frameworks against precisions, once what is made once is there."""

    def measure(folder: Path, known: Found) -> None:
        if "result" not in known:
            for backend, precision in product(backends.split(","), precisions.split(",")):
                task(folder, "run", name, "-b", backend, "-p", precision, "--part", "tiny")
            found = task(folder, "compare", name, "-b", backends, "-p", precisions, "--rounds", "3")
            known["result"] = {key: found[key] for key in ("cells", "plan", "recommended", "is_resolved", "took_s")}

    return measure


def training(name: str, threads: int) -> Callable[[Path, Found], None]:
    """The time to a task's quality with five seeds."""

    def measure(folder: Path, known: Found) -> None:
        if "cells" not in known:
            known["cells"] = task(folder, "run", name, "--scenario", "training", "--threads", str(threads))["cells"]

    return measure


def sizes(folder: Path, known: Found) -> None:
    """The same cells by three run sizes."""
    for size in ("rapid", "quick", "normal"):
        if size not in known:
            options = ("-b", "eager,compile,onnxruntime,openvino", "--rounds", "3", "--part", "tiny")
            found = task(folder, "compare", "digits", "--size", size, *options)
            known[size] = {"scores": scores(found), "is_resolved": found["is_resolved"], "took_s": found["took_s"]}
            return


def loadgen(_: Path, known: Found) -> None:
    """Microseconds between an answer and the next query, where the model does nothing."""
    if "median_us" not in known:
        code = (
            "import sys, tempfile, numpy as np\n"
            "from perfguard.records.tasks import *\n"
            "from perfguard.tasks.child.loadgen import System, measure\n"
            "from perfguard.tasks.task_files import load_task\n"
            "cell = TaskCell(backend='eager', precision=ModelPrecision.FP32, threads=1)\n"
            "answer = (np.zeros((1, 10), np.float32),)\n"
            "system = System(run=lambda batch: answer, inputs=np.zeros((64, 1, 8, 8), np.float32), batch=1,\n"
            "                progress=lambda _: None, failed=lambda error: sys.exit(repr(error)))\n"
            "job = TaskJob(task=load_task('digits'), cell=cell, scenario=Scenario.SINGLE_STREAM,\n"
            "              mode=Mode.PERFORMANCE, duration=Duration(min_queries=100000, min_s=2.0, max_s=60.0),\n"
            "              part=DataPart.FULL, logs=tempfile.mkdtemp(), data_folder='', cache='')\n"
            "stamps = measure(system, job, 1e-5).stamps\n"
            "gaps = (np.array(stamps.begun_ns[1:]) - np.array(stamps.ended_ns[:-1])) / 1e3\n"
            "print(np.median(gaps), np.percentile(gaps, 99), len(gaps))\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        median, high, count = done.stdout.split()[-3:]
        known |= {"median_us": float(median), "p99_us": float(high), "queries": int(count)}


PARTS: Mapping[str, tuple[Callable[[Path, Found], None], int]] = {
    "loadgen": (loadgen, 1),
    "training": (training("digits", 1), 1),
    "retinanet": (training("retinanet", 2), 1),
    "equal": (equal_cells, EQUAL_RUNS),
    "slower": (slower_cell, 3),
    "ssd": (matrix("ssd-mobilenetv2", "eager,compile,onnxruntime,openvino,litert", "fp32,int8"), 1),
    "digits": (matrix("digits", "eager,compile,onnxruntime,openvino", "fp32,bf16,int8"), 1),
    "sizes": (sizes, 3),
}
"""Each with how often it is called until it knows everything."""


def main() -> int:
    """Measure what is missing, then write what is known."""
    parser = argparse.ArgumentParser(prog="make proof-tasks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PARTS), help="one part")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing more after so many")
    options = parser.parse_args()
    fingerprint, until = probe(), time.monotonic() + 60 * options.minutes
    journal = REPOSITORY / ".perfguard" / "tasks" / f"{fingerprint.machine_id}.json"
    journal.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Found] = json.loads(journal.read_text()) if journal.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["PYTHONPATH"] = os.pathsep.join([place, str(REPOSITORY)])
        (folder / "fast.toml").write_text(_LONGER, encoding="utf-8")
        write_backends(folder)
        for name, (measure, calls) in PARTS.items():
            for _ in range(calls if options.only in (None, name) else 0):
                if time.monotonic() > until:
                    break
                measure(folder, known.setdefault(name, {}))
                journal.write_text(json.dumps(known))
            print(f"{name}: {len(json.dumps(known.get(name, {}))):,} bytes known")
    path = REPOSITORY / "docs" / "measurements" / f"tasks-{fingerprint.machine_id}.md"
    path.write_text("\n".join([f"# Tasks on `{fingerprint.machine_id}`", "", machine_line(fingerprint), *told(known)]))
    print(f"written to {path.relative_to(REPOSITORY)}")
    return 0 if is_good(known) else 1


def is_good(known: Mapping[str, Found]) -> bool:
    """Whether at most one comparison of equal cells is red, and every slower backend is found."""
    red = sum(not row["lower"] <= 1 <= row["upper"] for row in known.get("equal", {}).get("rows", []))
    return red <= 1 and all(row["lower"] > 1 for row in known.get("slower", {}).get("rows", []))


def told(known: Mapping[str, Found]) -> list[str]:
    """What is known, as Markdown."""
    lines: list[str] = []
    if rows := known.get("equal", {}).get("rows"):
        red = [row for row in rows if not row["lower"] <= 1 <= row["upper"]]
        widest = max(row["upper"] / row["lower"] - 1 for row in rows)
        lines += ["", "## Equal cells", "", f"{len(red)} of {len(rows)} comparisons of a cell with itself are red. "]
        lines[-1] += f"Five rounds each; the widest interval spans {widest:.1%}."
    if rows := known.get("slower", {}).get("rows"):
        lines += ["", "## A backend that takes 5 % longer", "", "| comparison | time over the original |", "|--:|--:|"]
        lines += [f"| {number} | {interval(row)} |" for number, row in enumerate(rows, start=1)]
    for name in ("ssd", "digits"):
        if found := known.get(name, {}).get("result"):
            lines += ["", f"## Matrix: {found['plan']['task']['name']}", "", *table(found)]
    lines += trainings(known)
    if "normal" in (found := known.get("sizes", {})):
        order = list(found["normal"]["scores"])
        lines += [
            "",
            "## Run sizes",
            "",
            "| size | Kendall's τ with normal | resolved | minutes | p90, µs |",
            "|---|--:|---|--:|---|",
        ]
        for size in ("normal", "quick", "rapid"):
            row = found[size]
            tau = kendalltau([found["normal"]["scores"][key] for key in order], [row["scores"][key] for key in order])
            times = ", ".join(f"{key} {value * 1e6:.1f}" for key, value in row["scores"].items())
            is_resolved, minutes = "yes" if row["is_resolved"] else "no", row["took_s"] / 60
            lines.append(f"| {size} | {tau.statistic:.2f} | {is_resolved} | {minutes:.1f} | {times} |")
    if "median_us" in (found := known.get("loadgen", {})):
        lines += ["", "## LoadGen's own time", ""]
        lines.append(
            f"{found['median_us']:.1f} µs between an answer and the next query (median of {found['queries']:,}; 99th "
            f"percentile {found['p99_us']:.1f} µs), perfguard's driver among it."
        )
    return [*lines, ""]


def trainings(known: Mapping[str, Found]) -> list[str]:
    """What five seeds took to reach a quality."""
    lines: list[str] = []
    for name, title in (("training", "Time to 96 % on digits"), ("retinanet", "Time to RetinaNet's quality")):
        if not (cells := known.get(name, {}).get("cells")):
            continue
        lines += ["", f"## {title}", "", "| seed | epochs | seconds | CPU seconds | quality |", "|--:|--:|--:|--:|--:|"]
        for each in cells[0]["trainings"]:
            last = each["epochs"][-1]
            lines.append(
                f"| {each['seed']} | {len(each['epochs'])} | {last['wall_s']:.2f} | {last['cpu_s']:.2f} | "
                f"{last['quality']:.4f} |"
            )
    return lines


def table(found: Found) -> list[str]:
    """Every cell of a comparison."""
    plan = found["plan"]
    target = plan["task"]["quality"]
    least, minutes = target["reference"] * target["fraction"], found["took_s"] / 60
    how = f"{plan['scenario']}, {plan['size']}, {plan['rounds']} rounds, {minutes:.1f} minutes with warm caches"
    lines = [
        f"{how}. Quality: {target['metric']}, {target['kind']}, at least {least:.4g}.",
        "",
        "| cell | p90, ms | time over the first | quality | result |",
        "|---|--:|--:|--:|---|",
    ]
    for cell in found["cells"]:
        score = "-" if cell["score"] is None else f"{cell['score'] * 1e3:.3f}"
        quality = "-" if cell["quality"] is None else f"{cell['quality']:.4f}"
        ratio = "-" if cell["over_reference"] is None else interval(cell["over_reference"])
        why = "; ".join(reason["code"] for reason in cell["reasons"])
        lines.append(
            f"| {name_of(cell)} | {score} | {ratio} | {quality} | {cell['outcome']}{f' ({why})' if why else ''} |"
        )
    said = "" if found["is_resolved"] else ", not resolved from the next"
    return [*lines, "", f"Recommended: {found['recommended']}{said}."]


def interval(row: Found) -> str:
    """`1.051 [1.043, 1.060]`."""
    return f"{row['ratio']:.3f} [{row['lower']:.3f}, {row['upper']:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
