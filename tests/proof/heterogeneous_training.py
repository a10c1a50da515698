"""What heterogeneous training costs and gains on this machine: the coordinator's CPU time, and hogwild's scaling.

`make proof-hetero`: some minutes, two CPUs, nothing else running. Prints a Markdown table; `-o FILE` writes it as well.

- The coordinator serves two processes that only sleep, about a thousand requests a second together; its CPU time,
  messages included, is a share of one core. Target: at most 2 % at 1,000 requests a second.
- covtype's shape, two hidden layers of 512, 64 examples an update: epochs with one hogwild process and with two, each
  measured in a process of its own, in turns. Target: two train at least 1.7 times as many examples a second.

Ends with 1 where a target is missed.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scipy.stats import t as student

from perfguard.hetero.child.processes import PipeChannel, Processes
from perfguard.hetero.coordinator import Coordinator
from perfguard.hetero.driving import Drive, Listener, wait_until_ready
from perfguard.hetero.messages import Report, ScheduleWork, Stop
from perfguard.hetero.plan import Goal, Member, TrainingPlan
from perfguard.hetero.policies import AdaptiveBatches, BatchLimits
from perfguard.host.identity import machine_line
from perfguard.host.probe import probe
from perfguard.records.training import WorkerPlace

MOST_OVERHEAD, LEAST_SCALING = 0.02, 1.7
RATE = 1000.0  # Requests a second
_EPOCHS = 4

SETTINGS = """
learning_rate = 0.1
epochs = {epochs}
algorithm = "cpu"
[data]
source = "covtype"
[groups.cpu]
kind = "hogwild"
batch = 512
updates = 8
workers = {workers}
"""


def sleeper(place: WorkerPlace, channel: PipeChannel, pause_s: float) -> None:
    """A worker that takes a fixed time for anything."""
    channel.send(ScheduleWork(worker=place.name))
    while not isinstance(order := channel.receive(), Stop):
        time.sleep(pause_s)
        channel.send(Report(worker=place.name, ticket=order.range.ticket, loss=1.0, updates=1, busy_s=pause_s))


def coordinator_share(seconds: float) -> tuple[float, float]:
    """Part of one core that the coordinator takes, scaled to 1,000 requests a second; and the requests a second."""
    names = ("cpu-0", "large-0")
    limits = {name: BatchLimits(initial=64, minimum=16, maximum=256) for name in ("cpu", "large")}
    plan = TrainingPlan(
        examples=10**9,
        members=[Member(name=name, group=name.partition("-")[0]) for name in names],
        limits=limits,
        loss_batch=10**9,
        goal=Goal(epochs=10, time_s=seconds),
        learning_rate=0.1,
    )
    coordinator = Coordinator(plan, AdaptiveBatches(limits))
    workers = [
        WorkerPlace(name=name, group=name.partition("-")[0], cpus=tuple(os.sched_getaffinity(0))) for name in names
    ]
    transport = Processes(workers, sleeper, len(names) / RATE)
    try:
        ready = wait_until_ready(transport, names, timeout_s=60.0, clock=time.monotonic)
        began, used = time.monotonic(), time.process_time()
        listener = Listener(happened=lambda _: None, used=lambda *_: None)
        Drive(coordinator, transport, lambda: time.monotonic() - began, listener).run(ready)
        took_s, used_s = time.monotonic() - began, time.process_time() - used
    finally:
        transport.close()
    requests = sum(count.updates for count in coordinator.counters.values())
    return used_s / took_s * RATE / (requests / took_s), requests / took_s


def examples_a_second(workers: int, folder: Path) -> float:
    """Examples that hogwild processes train on a second, without losses."""
    (folder / "train.toml").write_text(SETTINGS.format(workers=workers, epochs=_EPOCHS), encoding="utf-8")
    command = [sys.executable, "-m", "perfguard", "hetero", "train", "train.toml", "-q", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return float(_EPOCHS * found["trained"]["examples"] / found["epochs"][-1]["trained_s"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the coordinator, in each of five runs")
    parser.add_argument("--pairs", type=int, default=5, help="of runs with one process and with two")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    shares = [coordinator_share(given.seconds) for _ in range(5)]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.pairs):
            order = (1, 2) if number % 2 == 0 else (2, 1)
            speeds = {workers: examples_a_second(workers, Path(folder)) for workers in order}
            ratios.append(speeds[2] / speeds[1])
            print(f"· {speeds[1]:,.0f} and {speeds[2]:,.0f} examples/s: {ratios[-1]:.2f}", file=sys.stderr)
    share = statistics.median(each for each, _ in shares)
    centre, lower, upper = interval(ratios)
    rate = statistics.median(each for _, each in shares)
    host = probe()
    lines = [
        f"Measured on {machine_line(host)} (`{host.machine_id}`).",
        "",
        "| what | target | measured |",
        "|---|--:|--:|",
        f"| coordinator at 1,000 requests/s (measured at {rate:,.0f}) | at most 2 % of a core | {share:.2%} |",
        f"| examples/s, two hogwild processes over one | at least 1.7 | {centre:.2f} [{lower:.2f}, {upper:.2f}] |",
    ]
    print("\n".join(lines))
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(0 if share <= MOST_OVERHEAD and lower >= LEAST_SCALING else 1)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean with its 95 % interval by Student's t."""
    logs = [math.log(ratio) for ratio in ratios]
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(math.exp(statistics.fmean(logs) + sign * half) for sign in (0, -1, 1))  # type: ignore[return-value]


if __name__ == "__main__":
    main()
