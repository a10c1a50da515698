"""What the fleet costs, and what breaks first with many hosts: `make proof-fleet` (20 minutes, nothing else running).

1. An idle worker on the measured host: CPU time and wake-ups, over minutes; the same while it measures.
2. Ten thousand empty shards through a real PostgreSQL and three workers: the cost of each step.
3. The queue with 100,000 waiting shards: what a worker's question costs then.
4. A night of 1,000 hosts and 100,000 shards, simulated with these costs, checked against the run of 2.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg

from perfguard.fleet.queue import create_queue, tend
from perfguard.history.database import opened
from perfguard.host.probe import probe
from tests import postgresql_servers
from tests.fleet_hosts import CLASS, submitted

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Process:
    """What a process used since it was started."""

    cpu_s: float
    wake_ups: int

    @classmethod
    def of(cls, pid):
        """CPU seconds of all of its threads, to the nanosecond, and how often they were woken."""
        cpu_ns = wake_ups = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            status = (task / "status").read_text()
            wake_ups += int(status.split("voluntary_ctxt_switches:")[1].split()[0])
        return cls(cpu_ns / 1e9, wake_ups)


def worker_of(url, name, *arguments):
    """A real `perfguard fleet worker`."""
    return subprocess.Popen(
        [sys.executable, "-m", "perfguard", "fleet", "worker", "--class", CLASS, "--name", name, *arguments],
        cwd=tempfile.mkdtemp(), env={**os.environ, "PERFGUARD_DATABASE": url, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def idle_cost(server, *, seconds, settles_s=60.0):
    """CPU share and wake-ups a second of an idle worker, once it has settled."""
    url = fresh(server, "idle")
    worker = worker_of(url, "idle-1")
    try:
        time.sleep(settles_s)
        before, started = Process.of(worker.pid), time.monotonic()
        time.sleep(seconds)
        after, took = Process.of(worker.pid), time.monotonic() - started
    finally:
        worker.terminate()
        worker.wait()
    return {
        "seconds": took,
        "cpu_share": (after.cpu_s - before.cpu_s) / took,
        "wake_ups_per_s": (after.wake_ups - before.wake_ups) / took,
    }


def measuring_cost(server, *, seconds):
    """The same of a worker whose gate goes on; its gate sleeps here, so that only the worker is seen."""
    url = fresh(server, "measuring")
    with opened(url, _ROOT) as database:
        submitted(database, 1, lease=10 * seconds)
        tend(database)
    command = [sys.executable, "-m", "tests.fleet_hosts", url, "host-1", str(seconds + 30)]
    worker = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL)
    try:
        time.sleep(10)
        before, started = Process.of(worker.pid), time.monotonic()
        time.sleep(seconds)
        after, took = Process.of(worker.pid), time.monotonic() - started
    finally:
        worker.kill()
        worker.wait()
    return {"seconds": took, "cpu_s": after.cpu_s - before.cpu_s, "wake_ups": after.wake_ups - before.wake_ups}


def fresh(server, name):
    """A database with all tables."""
    url = server.new_database(f"{name}_{time.monotonic_ns()}")
    with opened(url, _ROOT, upgrades=True) as database:
        create_queue(database)
    return url


def empty_shards(server, *, shards, workers):
    """Time of each step and of the whole, and CPU time of PostgreSQL and of the workers."""
    url = fresh(server, "empty")
    found = {"shards": shards, "workers": workers}
    with opened(url, _ROOT) as database:
        started = time.monotonic()
        submitted(database, shards)
        found["submit_s"] = time.monotonic() - started
        started = time.monotonic()
        tend(database)
        found["queue_s"] = time.monotonic() - started
    server_before, started = server_cpu_s(server), time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fleet_hosts", url, f"host-{number}", "0"],
            cwd=_ROOT,
            stdout=subprocess.DEVNULL,
        )
        for number in range(1, workers + 1)
    ]
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            done = "SELECT count(*) FROM fleet_shards WHERE state = 'done'"
            while connection.execute(done).fetchone()[0] < shards:
                time.sleep(1)
            found["took_s"] = time.monotonic() - started
            found["server_cpu_s"] = server_cpu_s(server) - server_before
            found["worker_cpu_s"] = sum(Process.of(process.pid).cpu_s for process in processes)
            found["runs"] = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            found["bytes"] = connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found


def server_cpu_s(server):
    """CPU seconds of all processes that a server had so far."""
    total = 0.0
    for pid in server._pids():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def long_queue(server, *, shards, asked=200):
    """Milliseconds that a question for work takes with so many waiting: of their class, and of another one."""
    url = fresh(server, "long")
    found = {"shards": shards}
    with opened(url, _ROOT) as database:
        started = time.monotonic()
        submitted(database, shards)
        found["submit_s"] = time.monotonic() - started
        started = time.monotonic()
        tend(database)
        found["queue_s"] = time.monotonic() - started
        started = time.monotonic()
        tend(database)
        found["tend_s"] = time.monotonic() - started
        submitted(database, 1, name="other")
        tend(database)
    question = "SELECT id FROM procrastinate_fetch_job_v2(%s, NULL)"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE procrastinate_jobs")
        for name, queue in (("own_ms", CLASS), ("other_ms", "other"), ("none_ms", "none")):
            times = []
            for _ in range(asked):
                started = time.perf_counter()
                connection.execute(question, ([queue, "tending"],)).fetchone()
                times.append(1000 * (time.perf_counter() - started))
            found[name] = {"median": statistics.median(times), "largest": max(times)}
    return found


@dataclass
class Night:
    """Costs of the database, seconds of one of its cores, and what a night is."""

    hosts: int
    shards: int
    shard_s: float  # Typical time that a host measures a shard
    poll_s: float
    ask_s: float  # A worker's question
    shard_cost_s: float  # Claiming, delivering and finishing a shard
    tend_s: float
    tend_every_s: float
    cores: int
    seed: int = 1


def simulated(night):
    """How long a night takes, how busy the database is, and how long its clients wait.

    Events by time: a host asks, waits for a core of the database, measures, delivers, asks again.
    """
    random_ = random.Random(night.seed)
    free_at = [0.0] * night.cores
    busy_s, waits = 0.0, []

    def served(at, cost):
        nonlocal busy_s
        core = min(range(night.cores), key=free_at.__getitem__)
        begin = max(at, free_at[core])
        free_at[core] = begin + cost
        busy_s += cost
        waits.append(begin - at)
        return begin + cost

    events = [(random_.uniform(0, night.poll_s), number, host, "ask") for number, host in enumerate(range(night.hosts))]
    heapq.heapify(events)
    numbers = itertools.count(night.hosts)
    left, end, tended = night.shards, 0.0, 0.0
    measured = [0] * night.hosts
    while events:
        at, _, host, kind = heapq.heappop(events)
        if kind == "deliver":
            end = max(end, done := served(at, night.shard_cost_s))
            heapq.heappush(events, (done, next(numbers), host, "ask"))
            continue
        if at - tended > night.tend_every_s:
            tended = at
            served(at, night.tend_s * left / night.shards)
        answered = served(at, night.ask_s)
        if left:
            left -= 1
            measured[host] += 1
            takes_s = night.shard_s * random_.lognormvariate(0, 0.25)
            heapq.heappush(events, (answered + takes_s, next(numbers), host, "deliver"))
    waits.sort()
    return {
        "hours": end / 3600,
        "busy_cores": busy_s / end if end else 0.0,
        "wait_p50_ms": 1000 * waits[len(waits) // 2],
        "wait_p99_ms": 1000 * waits[int(0.99 * len(waits))],
        "wait_largest_s": waits[-1],
        "shards_a_host": [min(measured), max(measured)],
    }


def nights(costs, queue):
    """The night on paper, and what it takes to break it."""
    ask_s = queue["own_ms"]["median"] / 1000
    base = Night(
        hosts=1_000, shards=100_000, shard_s=280.0, poll_s=30.0, ask_s=ask_s,
        shard_cost_s=costs["server_cpu_s"] / costs["shards"], tend_s=queue["tend_s"], tend_every_s=600.0, cores=2,
    )  # fmt: skip
    variants = {
        "1,000 hosts, 100,000 shards of 4:40 min": base,
        "10,000 hosts, 1,000,000 shards": Night(**{**asdict(base), "hosts": 10_000, "shards": 1_000_000}),
        "1,000 hosts, shards of 10 s": Night(**{**asdict(base), "shard_s": 10.0}),
        "1,000 hosts, empty shards": Night(**{**asdict(base), "shard_s": 0.0}),
    }
    return {name: {**asdict(night), **simulated(night)} for name, night in variants.items()}


def checked(costs):
    """The run of empty shards, simulated with its own costs: what is predicted and what was seen."""
    per_shard_s = costs["server_cpu_s"] / costs["shards"]
    worker_s = costs["worker_cpu_s"] / costs["shards"]
    # Server and workers share the machine's two cores here.
    predicted = simulated(
        Night(
            hosts=costs["workers"], shards=costs["shards"], shard_s=0.0, poll_s=0.01, ask_s=0.0,
            shard_cost_s=per_shard_s + worker_s, tend_s=0.0, tend_every_s=1e9, cores=os.cpu_count() or 2,
        )
    )  # fmt: skip
    return {"predicted_s": 3600 * predicted["hours"], "seen_s": costs["took_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long an idle worker is watched")
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--queue", type=int, default=100_000)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    server = postgresql_servers.started()
    try:
        found = {"machine": probe().machine_id}
        found["idle"] = idle_cost(server, seconds=given.seconds)
        found["measuring"] = measuring_cost(server, seconds=min(120.0, given.seconds))
        found["empty"] = empty_shards(server, shards=given.shards, workers=3)
        found["queue"] = long_queue(server, shards=given.queue)
        found["check"] = checked(found["empty"])
        found["nights"] = nights(found["empty"], found["queue"])
    finally:
        server.stop()
    text = json.dumps(found, indent=1)
    print(text)  # noqa: T201
    if given.output:
        given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
