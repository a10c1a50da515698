"""Two hundred people who read `perfguard serve` over ten million values: `make proof-readers` (12 minutes).

Builds the history of `make proof-history` (1,000 series of 10,000 runs) in a SQLite file, or takes `--database`, serves
it, and lets readers open views as people do: the inbox, then a series, each page with its points, ten seconds apart.
Prints latencies, and the CPU time of the server for each answer: on two cores that also run the readers, waiting for a
core is most of a latency.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import numpy as np

from perfguard.history.database import opened
from perfguard.host.probe import probe
from perfguard.service.app import create_app
from perfguard.service.shared import Settings
from tests.proof.history_of_ten_million import PROJECT, case_ids, fill

_ROOT = Path(__file__).resolve().parents[2]


async def reader(client, series, *, until, thinks_s, seed, seen):
    """One person: a view, a pause, another view."""
    random_ = random.Random(seed)
    await asyncio.sleep(random_.uniform(0, thinks_s))
    while time.monotonic() < until:
        if random_.random() < 0.2:
            await ask(client, "/", seen, "page")
        else:
            name = random_.choice(series)
            query = urlencode({"case": name["case_id"], "machine": name["machine_id"]})
            await ask(client, f"/case?{query}", seen, "page")
            await ask(client, f"/api/points?{query}", seen, "points")
        await asyncio.sleep(random_.uniform(0.5, 1.5) * thinks_s)


async def ask(client, path, seen, kind):
    started = time.monotonic()
    try:
        status = (await client.get(path)).status_code
    except httpx.TransportError:
        status = 0
    seen.append((kind, started, time.monotonic() - started, status))


async def readers(url, *, count, seconds, thinks_s):
    """All of them for a while; what each request took."""
    seen = []
    limits = httpx.Limits(max_connections=count, keepalive_expiry=2)  # before the server closes them
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        series = (await client.get("/api/series")).json()
        until = time.monotonic() + seconds
        await asyncio.gather(
            *(reader(client, series, until=until, thinks_s=thinks_s, seed=seed, seen=seen) for seed in range(count))
        )
    return seen


def cpu_s(pid):
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def described(seen, cpu):
    """Quantiles of the latencies, and the server's CPU time of an answer."""
    times = sorted(took for _, _, took, _ in seen)
    return {
        "requests": len(seen),
        "failed": sum(status != 200 for *_, status in seen),
        "p50_ms": round(1000 * statistics.median(times), 1),
        "p95_ms": round(1000 * times[int(0.95 * len(times))], 1),
        "largest_ms": round(1000 * times[-1], 1),
        "cpu_ms_an_answer": round(1000 * cpu / len(seen), 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", help="a database that is filled already")
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10_000, help="of each series")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--thinks", type=float, default=10.0, help="seconds between two views of a reader")
    given = parser.parse_args()
    if given.serve:
        serve(given.database, given.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        database = given.database or filled(Path(folder) / "history.sqlite", series=given.series, runs=given.runs)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", __spec__.name, "--database", database, "--serve", str(port)]
        server = subprocess.Popen(command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)})
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url)
            found = {"machine": probe().machine_id, "readers": given.readers, "thinks_s": given.thinks}
            for phase in ("first", "second"):
                before = cpu_s(server.pid)
                seen = asyncio.run(readers(url, count=given.readers, seconds=given.seconds, thinks_s=given.thinks))
                found[phase] = described(seen, cpu_s(server.pid) - before)
            print(json.dumps(found, indent=1))  # noqa: T201
        finally:
            server.terminate()
            server.wait()


def filled(path, *, series, runs):
    """A SQLite file with so many values; its path."""
    names = case_ids(series)
    with opened(str(path), path.parent) as database:
        fill(database, names, np.random.default_rng(1).uniform(0.001, 0.1, len(names)), runs)
    return str(path)


def serve(database, port):
    """`perfguard serve`, without its limit on the requests of one address."""
    import uvicorn

    with opened(database, _ROOT) as found:
        app = create_app(found, Settings(project=PROJECT, per_minute=10**9))
        uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", lifespan="off")).run()


def wait_for(url):
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/health", timeout=5)
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    main()
