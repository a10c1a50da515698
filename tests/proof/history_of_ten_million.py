"""The history with ten million values, on SQLite and PostgreSQL: sizes, times of questions, ingest, and 200 kills.

    python -m tests.proof.history_of_ten_million [--series 1000] [--runs 10000] [--kills 200] [-o FILE]

Both databases are on the disk of the working directory. Times are CPU times, of this process and of the server's, and
medians over repetitions; ingest goes through `add_run`, which is what every run of perfguard calls, and the rest of the
values is inserted in bulk.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from perfguard.codec import to_json
from perfguard.history.changes import cases_on_machines
from perfguard.history.database import Database, opened
from perfguard.history.queries import read_log, read_points
from perfguard.history.recording import add_run
from perfguard.history.tables import runs, series
from perfguard.history.upkeep import status_of, verify
from perfguard.host.probe import probe
from perfguard.records.history import CaseRecord, RunRecord
from tests import postgresql_servers
from tests.changed_values import replace
from tests.integration.history.test_lost_writers import killed_writers, recorded

PROJECT = "team/nets"
STARTED = 1_700_000_000.0
REPETITIONS = 15
INGESTED_RUNS = 30
_AS_THEY_ARE = (
    "project",
    "run_id",
    "started_at",
    "mode",
    "suite",
    "machine_id",
    "outcome",
    "exit_code",
    "events_bytes",
)
CHUNK = 200  # Runs of one bulk insertion


def case_ids(count: int) -> list[str]:
    """Names of cases."""
    return [f"step.net-{number:04d}[batch=16,dtype=fp32]" for number in range(count)]


def a_run(number: int, names: list[str], levels: np.ndarray) -> RunRecord:
    """A run that measures every case, with noise of half a percent."""
    noise = np.random.default_rng(number).normal(0, 0.005, len(names))
    return RunRecord(
        project=PROJECT,
        run_id=f"run-{number:06d}-abcdef",
        started_at=STARTED + 600.0 * number,
        mode="rounds",
        suite="full",
        machine_id="intel-icelake-vm-1s2c-00000000",
        outcome="measured",
        exit_code=0,
        events_bytes=10_000_000 + number,
        cases=tuple(
            CaseRecord(case_id=name, median_s=float(level * np.exp(each)), spread_ratio=0.005, blocks=12)
            for name, level, each in zip(names, levels, noise, strict=True)
        ),
    )


def fill(database: Database, names: list[str], levels: np.ndarray, count: int) -> None:
    """Insert runs in bulk, as `add_run` would have."""
    first = a_run(0, names, levels)
    add_run(database, first)
    with database.reading() as connection:
        ids = np.array([row.id for row in connection.execute(series.select().order_by(series.c.id))])
    for begin in range(1, count, CHUNK):
        numbers = range(begin, min(begin + CHUNK, count))
        rows = [
            _row(replace(first, run_id=f"run-{number:06d}-abcdef", started_at=STARTED + 600.0 * number), number)
            for number in numbers
        ]
        medians = levels * np.exp(np.random.default_rng(begin).normal(0, 0.005, (len(rows), len(levels))))
        with database.writing() as connection:
            connection.execute(runs.insert(), rows)
            _insert(
                database,
                connection,
                [
                    (int(of), number + 1, float(value))
                    for column, of in enumerate(ids)
                    for number, value in zip(numbers, medians[:, column], strict=True)
                ],
            )


def _row(run: RunRecord, number: int) -> dict[str, object]:
    commit = f"{number:040x}"
    row = {name: getattr(run, name) for name in _AS_THEY_ARE}
    row |= {"id": number + 1, "content_hash": f"{number:064x}", "recorded_at": run.started_at, "is_paired": 0}
    return row | {"source_id": commit, "commit": commit, "stack_id": "torch-2.13.0-1a2b3c4d", "cases": len(run.cases)}


def _insert(database: Database, connection, rows: list[tuple[int, int, float]]) -> None:
    raw = connection.connection.cursor()
    if database.is_sqlite:
        raw.executemany("INSERT INTO case_values VALUES (?, ?, ?, 5000, 12)", rows)
    else:
        with raw.copy("COPY case_values (series_id, run_row, median_s, spread_ppm, blocks) FROM STDIN") as copy:
            for row in rows:
                copy.write_row((*row, 5000, 12))
    raw.close()


@contextmanager
def cpu_s(server: int | None, into: list[tuple[float, float]]) -> Iterator[None]:
    """CPU seconds of this process and of the server's processes."""

    def used() -> tuple[float, float]:
        return time.process_time(), _server_s(server) if server else 0.0

    before = used()
    yield
    after = used()
    into.append((after[0] - before[0], after[1] - before[1]))


def _server_s(pid: int) -> float:
    main = psutil.Process(pid)
    total = 0.0
    for process in (main, *main.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def question(server: int | None, ask: Callable[[], object], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Milliseconds of a question: the median of this process, and the mean of the server, whose clock is coarse."""
    ask()
    taken: list[tuple[float, float]] = []
    walls = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        with cpu_s(server, taken):
            ask()
        walls.append(time.perf_counter() - begun)
    return {
        "cpu_ms": 1e3 * (statistics.median(own for own, _ in taken) + statistics.fmean(its for _, its in taken)),
        "wall_ms": 1e3 * statistics.median(walls),
    }


def measured(url: str, server: int | None, arguments: argparse.Namespace) -> dict[str, object]:
    """All figures of one database."""
    names, levels = case_ids(arguments.series), np.random.default_rng(1).uniform(0.001, 0.5, arguments.series)
    with opened(url, Path.cwd(), upgrades=True) as database:
        begun = time.monotonic()
        fill(database, names, levels, arguments.runs)
        if not database.is_sqlite:
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("SELECT setval('runs_id_seq', (SELECT max(id) FROM runs))")
                connection.exec_driver_sql("VACUUM ANALYZE")
        filled_s = time.monotonic() - begun
        ingest: list[tuple[float, float]] = []
        new = [a_run(arguments.runs + number, names, levels) for number in range(INGESTED_RUNS)]
        begun = time.monotonic()
        with cpu_s(server, ingest):
            if not all(add_run(database, run) for run in new):
                raise RuntimeError("a new run was taken for a known one")
        ingested_s = time.monotonic() - begun
        draw = random.Random(3)
        status = status_of(database)
        found: dict[str, object] = {
            "values": status.values,
            "bytes_a_value": status.size_bytes / status.values,
            "filled_s": filled_s,
            "ingest_values_a_second": INGESTED_RUNS * len(names) / ingested_s,
            "ingest_cpu_s": sum(ingest[0]),
            "series": question(server, lambda: read_points(database, PROJECT, case_ids=[draw.choice(names)])),
            "newest_100_runs": question(server, lambda: read_log(database, PROJECT, last=100)),
            "overview": question(server, lambda: read_points(database, PROJECT, last=5), 5),
        }
        points = read_points(database, PROJECT, case_ids=[names[0]])
        found["change_points_of_a_series"] = question(None, lambda: cases_on_machines(points), 5)
    return found


def kills(url: str, count: int) -> dict[str, int]:
    """Writers that are killed one after another, and what of their acknowledged runs is missing."""
    with opened(url, Path.cwd(), upgrades=True):
        pass
    acknowledged = killed_writers(url, count)
    with opened(url, Path.cwd()) as database:
        return {
            "kills": count,
            "acknowledged": len(acknowledged),
            "lost": len(acknowledged - recorded(database)),
            "damages": len(verify(database).damages),
        }


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=Path("history-figures.json"))
    arguments = parser.parse_args()
    file = Path.cwd() / "ten-million.sqlite"
    server = postgresql_servers.started(Path.cwd())
    pid = server.main_pid()
    try:
        figures = {"machine": probe().machine_id}
        file.unlink(missing_ok=True)
        figures["sqlite"] = measured(f"sqlite:///{file}", None, arguments)
        print(json.dumps(figures, indent=1), flush=True)
        figures["postgresql"] = measured(server.url(), pid, arguments)
        print(json.dumps(figures["postgresql"], indent=1), flush=True)
        figures["kills"] = {
            "sqlite": kills(f"sqlite:///{file.with_name('kills.sqlite')}", arguments.kills // 2),
            "postgresql": kills(server.new_database("kills"), arguments.kills // 2),
        }
    finally:
        server.stop()
        for place in Path.cwd().glob("*.sqlite*"):
            place.unlink()
    arguments.output.write_text(to_json(figures, indent=1) + "\n")
    print(to_json(figures, indent=1))


if __name__ == "__main__":
    main()
