"""The fleet: submissions, the shards of one, hosts, schedules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfguard.fleet.verdict import outcome_of
from perfguard.records.fleet import Fitness, FleetStatus, Host, Schedule, Shard
from perfguard.report.messages.catalog import describe
from perfguard.report.terminal.tables import plain_table, texts
from perfguard.units import format_ago, format_count

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_submissions(found: FleetStatus) -> list[RenderableType]:
    """A row for each submission."""
    if not found.submissions:
        return texts("nothing was submitted; `perfguard fleet submit --baseline REV` does")
    table = plain_table(">id", "submitted", "~project/2", "~candidate", "~suite/3", "done", "verdict")
    for submission in found.submissions:
        shards = found.shards_of(submission.id)
        ended = sum(shard.state.has_ended for shard in shards)
        table.add_row(
            str(submission.id),
            format_ago(submission.submitted_at),
            submission.work.project,
            submission.work.candidate[:12],
            submission.work.suite,
            f"{ended} of {len(shards)}",
            counted_outcomes(shards),
        )
    return [table]


def counted_outcomes(shards: Sequence[Shard]) -> str:
    """The outcomes with how many shards had each, the worst first."""
    said = [outcome_of(shard) for shard in shards]
    last = ("inconclusive", "cancelled", "running", "waiting", "pass")
    order = dict.fromkeys(("regression", "failed", *(name for name in said if name not in last), *last))
    return ", ".join(f"{said.count(name)} {name}" for name in order if name in said)


def render_submission(found: FleetStatus) -> list[RenderableType]:
    """What was submitted, then a row for each shard; a regression on some machine classes only is said so."""
    (submission,) = found.submissions
    work = submission.work
    head = (
        f"submission {submission.id}: {work.project} {work.candidate[:12]} against {work.baseline[:12]}, "
        f"suite {work.suite}, by {submission.author}, {format_ago(submission.submitted_at)}"
    )
    table = plain_table(">shard", "~class", "~cases/2", "~host", ">attempt/3", "outcome", "~run/1")
    for shard in found.shards:
        table.add_row(
            str(shard.id),
            shard.machine_class,
            format_count(len(shard.patterns), "pattern")
            if len(shard.patterns) > 1
            else "".join(shard.patterns) or "all",
            shard.host or "-",
            str(shard.attempt),
            outcome_of(shard),
            shard.run_id or "-",
        )
    problems = [f"shard {shard.id}: {describe(shard.problem)}" for shard in found.shards if shard.problem is not None]
    return [*texts(head), table, *texts(*problems, *_disagreement(found.shards))]


def _disagreement(shards: Sequence[Shard]) -> list[str]:
    """A line where some machine classes have a regression and others, that were measured whole, have none."""
    classes = {shard.machine_class for shard in shards}
    slow = {shard.machine_class for shard in shards if outcome_of(shard) == "regression"}
    fast = {name for name in classes if all(outcome_of(s) == "pass" for s in shards if s.machine_class == name)}
    if not slow or not fast:
        return []
    return [f"a regression on {', '.join(sorted(slow))} only; none on {', '.join(sorted(fast))}"]


def render_hosts(hosts: Sequence[Host]) -> list[RenderableType]:
    """A row for each host; what made one unfit, or what it waits for, stands below."""
    if not hosts:
        return texts("no host is registered; `perfguard fleet worker` registers the one that it runs on")
    table = plain_table("~host", "~machine/2", "~classes/1", "state", "measures", "seen")
    for host in hosts:
        more = [name for name in host.classes if name != host.machine_id]
        table.add_row(
            host.name,
            host.machine_id,
            ", ".join(more) or "-",
            host.fitness.value,
            f"shard {host.shard_id}" if host.shard_id is not None else "waits" if _waits(host) else "-",
            format_ago(host.seen_at),
        )
    reasons = [f"{host.name}: {describe(host.reason)}" for host in hosts if host.reason]
    return [table, *texts(*reasons)]


def _waits(host: Host) -> bool:
    """Whether a fit host waits for another run on it."""
    return host.fitness is Fitness.FIT and host.reason is not None


def render_schedules(found: Sequence[Schedule]) -> list[RenderableType]:
    """A row for each schedule."""
    if not found:
        return texts("no schedule; `perfguard fleet schedule NAME --cron '0 2 * * *'` makes one")
    table = plain_table("~schedule", "times (UTC)", "~branch", "~suite/1", "~classes/2", "next (UTC)")
    for schedule in found:
        table.add_row(
            schedule.name,
            schedule.cron,
            schedule.branch,
            schedule.work.suite,
            ", ".join(schedule.machine_classes),
            time.strftime("%Y-%m-%d %H:%M", time.gmtime(schedule.due_at)),
        )
    return [table]
