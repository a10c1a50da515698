"""A host of a fleet whose gates take a moment and measure its own number: `python -m tests.fleet_hosts URL NAME`."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from perfguard.fleet.hosts import register
from perfguard.fleet.queue import work
from perfguard.fleet.shards import submit
from perfguard.fleet.working import take
from perfguard.history.database import opened
from perfguard.host.probe import probe
from perfguard.records.fleet import Delivery, Engine, GateWork
from perfguard.records.history import CaseRecord, MeasuredCode, MeasuredRun, RecordedSamples, RunRecord

CLASS = "imagined"
POLL_S = 0.25
WORK = GateWork(
    project="team/nets", repository="/nowhere", folder="", baseline="a" * 40, candidate="b" * 40, suite="quick",
    budget_s=1.0,
)  # fmt: skip
CASE = "step.imagined"


def number_of(host):
    """What a host measures in every sample, seconds."""
    return 0.001 * (1 + int(host[-1]))


def a_measurement(attempt, host, *, samples=6):
    """A run whose every sample is the host's number."""
    value = number_of(host)
    record = RunRecord(
        project=attempt.work.project, run_id=f"shard-{attempt.shard_id}-{attempt.number}-{host}", started_at=1.79e9,
        mode="paired", suite=attempt.work.suite, machine_id=host, outcome="pass", exit_code=0,
        candidate=MeasuredCode(commit=attempt.work.candidate), baseline=MeasuredCode(commit=attempt.work.baseline),
        cases=(CaseRecord(case_id=CASE, median_s=value, spread_ratio=0.001, blocks=1),),
    )  # fmt: skip
    kept = {CASE: RecordedSamples(baseline_s=((value,) * samples,), candidate_s=((value,) * samples,))}
    return MeasuredRun(record=record, samples=kept)


def a_delivery(attempt, host, **fields):
    """What a host gives for an attempt."""
    made = {"exit_code": 0, "measured": a_measurement(attempt, host), **fields}
    return Delivery(shard_id=attempt.shard_id, attempt=attempt.number, token=attempt.token, host=host, **made)


def submitted(database, shards, *, lease=None, engine=Engine.QUEUE, work_=WORK, name=CLASS):
    """A submission of so many shards; its id."""
    return submit(database, work_, [(name, ())] * shards, engine=engine, author="a test", lease_s=lease)


def _measure(attempt, host, takes_s):
    time.sleep(takes_s)
    return a_delivery(attempt, host)


def main(url, host, *, takes_s=0.3, is_once=False):
    """Take shards until stopped."""
    with opened(url, Path.cwd()) as database:
        register(database, host, probe(), (CLASS,))
        measure = partial(_measure, host=host, takes_s=takes_s)
        taking = partial(
            take, database, host=host, measure=measure, canary=lambda: 0.01,
            say=lambda _: None,
        )  # fmt: skip
        work(database, [CLASS], taking, poll_s=POLL_S, is_once=is_once)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], takes_s=float(sys.argv[3]) if len(sys.argv) > 3 else 0.3)
