"""The fleet as the API gives it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from perfguard.fleet.verdict import outcome_of
from perfguard.records.fleet import FleetStatus, Host, ShardState
from perfguard.report.messages.catalog import describe

_MOST_PROBLEMS = 3  # Of a submission


class HostAnswer(Struct, frozen=True, kw_only=True):
    """A machine that measures."""

    name: str
    machine_id: str
    classes: tuple[str, ...]
    fitness: str  # `fit`, `unfit` or `drained`
    reason: str | None
    seen_at: float
    shard: int | None  # What it measures now


class SubmissionAnswer(Struct, frozen=True, kw_only=True):
    """Work and what became of its shards."""

    id: int
    project: str
    candidate: str
    baseline: str
    suite: str
    author: str
    at: float
    shards: dict[str, int]  # How many by state
    outcomes: dict[str, int]  # How many by what became of them: `pass`, `regression`, `different`, `failed`, `waiting`
    problems: tuple[str, ...]  # Why attempts gave no result, each once


class StalledShard(Struct, frozen=True, kw_only=True):
    """A shard whose lease has ended, and that nobody has taken away yet."""

    id: int
    submission: int
    host: str | None
    overdue_s: float


class FleetAnswer(Struct, frozen=True, kw_only=True):
    """Hosts, queue, stalled shards, the newest submissions."""

    hosts: tuple[HostAnswer, ...]
    waiting: dict[str, int]  # Shards by machine class
    stalled: tuple[StalledShard, ...]
    submissions: tuple[SubmissionAnswer, ...]


def fleet_answer(hosts: Sequence[Host], status: FleetStatus) -> FleetAnswer:
    """The same facts in plain types."""
    now = time.time()
    waiting = _counted(shard.machine_class for shard in status.shards if shard.state is ShardState.WAITING)
    late = [
        (shard, now - shard.lease_until)
        for shard in status.shards
        if shard.state is ShardState.RUNNING and shard.lease_until is not None
    ]
    return FleetAnswer(
        hosts=tuple(
            HostAnswer(
                name=host.name,
                machine_id=host.machine_id,
                classes=host.classes,
                fitness=host.fitness.value,
                reason=describe(host.reason) if host.reason else None,
                seen_at=host.seen_at,
                shard=host.shard_id,
            )
            for host in hosts
        ),
        waiting=waiting,
        stalled=tuple(
            StalledShard(id=shard.id, submission=shard.submission_id, host=shard.host, overdue_s=overdue_s)
            for shard, overdue_s in late
            if overdue_s > 0
        ),
        submissions=tuple(
            SubmissionAnswer(
                id=each.id,
                project=each.work.project,
                candidate=each.work.candidate,
                baseline=each.work.baseline,
                suite=each.work.suite,
                author=each.author,
                at=each.submitted_at,
                shards=_counted(shard.state.value for shard in status.shards_of(each.id)),
                outcomes=_counted(outcome_of(shard) for shard in status.shards_of(each.id)),
                problems=tuple(
                    dict.fromkeys(
                        describe(shard.problem) for shard in status.shards_of(each.id) if shard.problem is not None
                    )
                )[:_MOST_PROBLEMS],
            )
            for each in status.submissions
        ),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names))
