"""`perfguard fleet`: gates on many machines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfguard.cli.commands.fleet_work import schedule_command, submit_command
from perfguard.cli.declaring import flag
from perfguard.cli.fleet import opened_fleet, tend_engines
from perfguard.cli.options import format_option
from perfguard.errors import ExitCode, UsageError
from perfguard.units import format_count, printable

if TYPE_CHECKING:
    from perfguard.history.database import Database
    from perfguard.records.facts import Fact
    from perfguard.records.fleet import FleetStatus

_ASKS_AGAIN_S = 5.0
_TENDS_AGAIN_S = 30.0


@click.group("fleet")
def fleet_command() -> None:
    """Run gates on many machines, through PostgreSQL or Slurm.

    Work is split into shards; each is measured whole on one host, baseline and candidate in turns. Results come into
    the history that the setting `database` names. See docs/fleet.md for the way from one machine to many.
    """


def _say(found: Fact) -> None:
    from perfguard.report.messages.catalog import describe

    click.echo(f"{time.strftime('%H:%M:%S')} {printable(describe(found))}", err=True)


@fleet_command.command("init")
def init() -> None:
    """Make the tables of the history and of the queue in the configured PostgreSQL database."""
    from perfguard.fleet.queue import create_queue, require_queue

    _, opening = opened_fleet(upgrades=True)
    with opening as database:
        require_queue(database)
        create_queue(database)
        click.echo(f"{printable(database.name)} is ready; start `perfguard fleet worker` on each host")


@fleet_command.command("worker")
@click.option("--class", "classes", multiple=True, metavar="NAME", help="More classes that this host is of.")
@click.option("--name", help="What this host is called; default: its host name.")
@click.option(
    "--poll", "poll_s", type=click.FloatRange(0.1, 3600), default=60.0, show_default=True, metavar="SECONDS",
    help="How often an idle worker asks for work.",
)  # fmt: skip
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where clones are kept; default: your data folder.",
)
@flag("--once", "is_once", help="End when no shard waits, instead of waiting for more.")
def worker(classes: tuple[str, ...], name: str | None, poll_s: float, folder: Path | None, *, is_once: bool) -> None:
    """Measure shards on this machine, one at a time, until it is stopped.

    The host registers its fingerprint. It takes shards of its machine id, as `perfguard fingerprint` shows it, and of
    the classes that you give. Before each shard it times fixed work, the canary; where that drifted, the host is unfit,
    its shards go elsewhere, and this command ends with exit code 3. Stopping it gives its shard back.
    """
    from contextlib import ExitStack
    from functools import partial

    from perfguard.errors import HostUnfitError
    from perfguard.fleet.hosts import read_hosts, register
    from perfguard.fleet.measuring import measure
    from perfguard.fleet.queue import require_ready, work
    from perfguard.fleet.working import clones_of, host_name, only_worker, take
    from perfguard.host.probe import probe
    from perfguard.records.fleet import Fitness

    _, opening = opened_fleet()
    with ExitStack() as ending:
        database = ending.enter_context(opening)
        require_ready(database)
        fingerprint, host = probe(), name or host_name()
        every = tuple(dict.fromkeys([fingerprint.machine_id, *classes]))
        place = (folder or clones_of(os.environ)).absolute()
        place.mkdir(parents=True, exist_ok=True)
        ending.enter_context(only_worker(place, host))
        known = next((other for other in read_hosts(database) if other.name == host), None)
        registered = register(database, host, fingerprint, every)
        if known is not None and (known.machine_id, set(known.classes)) != (fingerprint.machine_id, set(every)):
            before = ", ".join(known.classes)
            click.echo(
                f"! {host} was registered for {before}; a worker of that name elsewhere is now this one", err=True
            )
        if registered.fitness is not Fitness.FIT:
            raise HostUnfitError(_why_unfit(database, host))
        click.echo(f"{host} takes shards of {', '.join(every)}; clones are in {place}", err=True)
        doing = partial(measure, host=host, folder=place, environment=dict(os.environ))
        went_on = [True]

        def measure_shard(shard_id: int) -> bool:
            went_on[0] = take(database, shard_id, host=host, measure=doing, say=_say)
            return went_on[0]

        work(database, every, measure_shard, poll_s=poll_s, is_once=is_once)
        if not went_on[0]:
            raise HostUnfitError(_why_unfit(database, host))


def _why_unfit(database: Database, name: str) -> str:
    from perfguard.fleet.hosts import read_hosts
    from perfguard.report.messages.catalog import describe

    host = next((host for host in read_hosts(database) if host.name == name), None)
    if host is None:
        return f"{name} was removed from the fleet; start this worker again, and it registers anew"
    why = describe(host.reason) if host.reason is not None else f"it is {host.fitness.value}"
    return f"{name} gets no shards: {why}; `perfguard fleet hosts --fit {name}` takes it back"


@fleet_command.command("tend")
def tend_command() -> None:
    """Hand out anew what was lost, submit what is scheduled, and take Slurm's results; once.

    Workers of the queue do it by themselves. With Slurm have cron do it every few minutes on the login node.
    """
    _, opening = opened_fleet()
    with opening as database:
        tend_engines(database)


@fleet_command.command("status")
@click.argument("submission", type=int, required=False)
@flag("--wait", "waits", help="Wait until all of its shards have ended, and exit with the worst of their exit codes.")
@flag("--all-projects", help="Of all projects, instead of this one.")
@format_option
def status(submission: int | None, output_format: str, *, waits: bool, all_projects: bool) -> None:
    """Show the newest submissions, or the shards of one SUBMISSION."""
    from perfguard.cli.output import print_and_exit
    from perfguard.fleet.overview import read_status, require_submission
    from perfguard.fleet.verdict import exit_code_of
    from perfguard.history.project_names import project_name
    from perfguard.report.terminal.fleet import render_submission, render_submissions

    if waits and submission is None:
        raise UsageError("--wait needs a submission, as in `perfguard fleet status 12 --wait`")
    loaded, opening = opened_fleet()
    with opening as database:
        if submission is None:
            found = read_status(database, project=None if all_projects else project_name(loaded))
        else:
            require_submission(database, submission)
            found = _waited_for(database, submission) if waits else read_status(database, submission_id=submission)
    print_and_exit(
        found,
        lambda: render_submissions(found) if submission is None else render_submission(found),
        output_format,
        exit_code=int(exit_code_of(found.shards) if waits else ExitCode.PASS),
    )


def _waited_for(database: Database, submission: int) -> FleetStatus:
    """Its state once nothing more comes."""
    from perfguard.fleet.overview import read_status
    from perfguard.report.terminal.fleet import counted_outcomes

    tended, said = time.monotonic(), ""
    while True:
        found = read_status(database, submission_id=submission)
        if all(shard.state.has_ended for shard in found.shards):
            return found
        if (now := counted_outcomes(found.shards)) != said:
            click.echo(f"{time.strftime('%H:%M:%S')} {now}", err=True)
            said = now
        time.sleep(_ASKS_AGAIN_S)
        if time.monotonic() - tended > _TENDS_AGAIN_S:
            tend_engines(database)
            tended = time.monotonic()


@fleet_command.command("cancel")
@click.argument("submission", type=int)
def cancel_command(submission: int) -> None:
    """Cancel a SUBMISSION: what waits is not handed out, and the result of what is being measured is dropped."""
    from perfguard.fleet.shards import cancel

    _, opening = opened_fleet()
    with opening as database:
        count = cancel(database, submission)
    click.echo(f"submission {submission}: {format_count(count, 'shard')} cancelled")


@fleet_command.command("hosts")
@click.option("--fit", metavar="HOST", help="Take a host back; its canary starts afresh.")
@click.option("--drain", metavar="HOST", help="Give a host no more shards.")
@click.option("--because", "reason", default="", metavar="TEXT", help="Why it is drained.")
@click.option("--remove", metavar="HOST", help="Forget a host that is gone; a worker registers it anew.")
@format_option
def hosts(fit: str | None, drain: str | None, reason: str, remove: str | None, output_format: str) -> None:
    """List the hosts: what they are, whether they are fit, what they measure now."""
    from perfguard.cli.output import print_and_exit
    from perfguard.fleet.hosts import read_hosts, remove_host, state_fitness
    from perfguard.history.states import author_in
    from perfguard.records.facts import fact
    from perfguard.records.fleet import Fitness
    from perfguard.report.terminal.fleet import render_hosts

    loaded, opening = opened_fleet()
    with opening as database:
        if fit:
            state_fitness(database, fit, Fitness.FIT)
        if drain:
            why = fact("fleet.drained", author=author_in(loaded.project), reason=reason)
            state_fitness(database, drain, Fitness.DRAINED, reason=why)
        if remove:
            remove_host(database, remove)
        found = read_hosts(database)
        if not found and database.is_sqlite:
            click.echo(
                f"! {printable(database.name)} is a file of this machine; hosts of a queue share PostgreSQL", err=True
            )
    print_and_exit(found, lambda: render_hosts(found), output_format, exit_code=int(ExitCode.PASS))


@fleet_command.command("manifest")
@click.option("--class", "machine_class", required=True, metavar="NAME", help="Label perfguard/class of the nodes.")
@click.option("--image", required=True, help="Image that holds perfguard, git and your environment.")
@click.option("--cpus", type=click.IntRange(min=1), required=True, metavar="N", help="Whole CPUs of the pod.")
@click.option("--memory", default="16Gi", show_default=True, help="Memory of the pod.")
@click.option("--secret", default="perfguard", show_default=True, help="Secret whose key `database` is the URL.")
def manifest(machine_class: str, image: str, cpus: int, memory: str, secret: str) -> None:
    """Print a Kubernetes Job that measures all waiting shards of a class (untested), for kubectl create."""
    from perfguard.fleet.kubernetes import job

    click.echo(json.dumps(job(machine_class, image=image, cpus=cpus, memory=memory, secret=secret), indent=1))


@fleet_command.command("measure", hidden=True)
@click.argument("array", type=click.Path(path_type=Path))
@click.argument("index", type=int)
def measure_command(array: Path, index: int) -> None:
    """Measure one task of a Slurm array; its batch script calls this."""
    from perfguard.fleet.slurm import measure_task

    found = measure_task(array, index, os.environ)
    if found.problem is not None:
        _say(found.problem)
        raise click.exceptions.Exit(int(ExitCode.INFRASTRUCTURE))


fleet_command.add_command(submit_command)
fleet_command.add_command(schedule_command)
