"""`perfguard fleet submit` and `schedule`: what hosts are to measure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfguard.cli.declaring import SecondsType, flag, together
from perfguard.cli.fleet import opened_fleet, tend_engines
from perfguard.cli.options import format_option
from perfguard.config import LoadedConfig
from perfguard.errors import ExitCode, UsageError
from perfguard.units import format_count, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfguard.history.database import Database
    from perfguard.records.fleet import GateWork

_engine_option = click.option(
    "--engine",
    type=click.Choice(["queue", "slurm"]),
    default="queue",
    show_default=True,
    help="What brings shards to hosts.",
)
_work_options = together(
    click.option("-s", "--suite", help="Suite to measure; default: as configured."),
    click.option("-c", "--case", "patterns", multiple=True, metavar="PATTERN", help="Cases instead of a suite."),
    click.option("--budget", "budget_s", type=SecondsType(), metavar="TIME", help="Budget of each shard's gate."),
    click.option(
        "--class",
        "classes",
        multiple=True,
        metavar="NAME",
        help="Machine class to measure on; may be repeated. Default: each class that a fit host is of.",
    ),
    click.option(
        "--split",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        metavar="N",
        help="Shards for each class.",
    ),
    click.option(
        "--repository",
        metavar="URL",
        help="What hosts clone; default: git's remote origin, else this repository's path.",
    ),
    _engine_option,
    click.option(
        "--shared-folder",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="With --engine slurm: a folder that all nodes share; default: .perfguard/fleet.",
    ),
    click.argument("arguments", nargs=-1, metavar="[-- OPTIONS]"),
)
"""What `submit` and `schedule` measure, and where."""


@click.command("submit")
@click.option("--candidate", default="HEAD", show_default=True, metavar="REV", help="What to judge; must be pushed.")
@click.option("--baseline", required=True, metavar="REV", help="What to compare with.")
@_work_options
def submit_command(candidate: str, baseline: str, engine: str, **options: Any) -> None:
    """Have a commit gated on other machines: a shard for each machine class, or N with --split.

    OPTIONS go to `perfguard gate` on the hosts, as in -- --setup 'pip install .'.
    """
    from perfguard.fleet.shards import submit
    from perfguard.fleet.submitting import classes_of, commit_of, out_of_reach
    from perfguard.history.states import author_in
    from perfguard.records.fleet import Engine

    loaded, opening = opened_fleet()
    _require_options_of_gate(options["arguments"])
    work = _work(loaded, options, commit_of(loaded, baseline), commit_of(loaded, candidate))
    if (problem := out_of_reach(loaded, work)) is not None:
        click.echo(f"! {printable(problem)}", err=True)
    groups = _groups(loaded, options)
    with opening as database:
        _require_engine(database, engine)
        classes = classes_of(database, options["classes"], Engine(engine))
        shards = [(name, patterns) for name in classes for patterns in groups]
        _warn_of_classes(database, classes, engine)
        submission = submit(database, work, shards, engine=Engine(engine), author=author_in(loaded.project))
        tend_engines(database, engine)
    click.echo(f"submission {submission}: {format_count(len(shards), 'shard')} for {', '.join(classes)}")
    click.echo(f"`perfguard fleet status {submission} --wait` waits for its verdict", err=True)


def _require_options_of_gate(arguments: Sequence[str]) -> None:
    """Refuse what `perfguard gate` would refuse on the hosts."""
    from perfguard.cli.commands.measure import gate_command

    gate_command.make_context("perfguard gate", list(arguments))


def _warn_of_classes(database: Database, classes: Sequence[str], engine: str) -> None:
    """Say which classes no fit host has: their shards wait until one registers."""
    from perfguard.fleet.hosts import read_hosts
    from perfguard.records.fleet import Fitness

    known = {name for host in read_hosts(database) if host.fitness is Fitness.FIT for name in host.classes}
    missing = [name for name in classes if name not in known]
    if missing and engine == "queue":
        click.echo(f"! no fit host is of {', '.join(missing)} now; its shards wait for one", err=True)


def _work(loaded: LoadedConfig, options: dict[str, Any], baseline: str, candidate: str) -> GateWork:
    from perfguard.fleet.submitting import work_of

    chosen = {name: options[name] for name in ("suite", "budget_s", "repository", "shared_folder", "arguments")}
    return work_of(loaded, (baseline, candidate), **chosen)


def _groups(loaded: LoadedConfig, options: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    from perfguard.fleet.submitting import groups_of

    return groups_of(loaded, suite=options["suite"], patterns=options["patterns"], shards=options["split"])


def _require_engine(database: Database, engine: str) -> None:
    from perfguard.fleet.queue import require_ready
    from perfguard.fleet.slurm import require_slurm

    if engine == "queue":
        require_ready(database)
    else:
        require_slurm()


@click.command("schedule")
@click.argument("name", required=False)
@click.option("--cron", metavar="TIMES", help="When, in UTC: '0 2 * * *' is every night at two.")
@click.option("--branch", default="main", show_default=True, help="Branch whose newest commit is measured.")
@flag("--remove", "is_removed", help="Remove the schedule.")
@_work_options
@format_option
def schedule_command(
    name: str | None,
    cron: str | None,
    branch: str,
    engine: str,
    output_format: str,
    *,
    is_removed: bool,
    **options: Any,
) -> None:
    """Submit a branch again and again: its newest commit against the one before; without NAME list the schedules.

    A time at which the branch has not moved is passed over.
    """
    from perfguard.cli.output import print_and_exit
    from perfguard.fleet.schedules import next_time, read_schedules, remove_schedule, save_schedule, tip_of
    from perfguard.fleet.submitting import classes_of, repository_of
    from perfguard.history.project_names import project_name
    from perfguard.records.fleet import Engine, Schedule
    from perfguard.report.terminal.fleet import render_schedules

    loaded, opening = opened_fleet()
    with opening as database:
        if name is None:
            found = read_schedules(database, project=project_name(loaded))
            print_and_exit(found, lambda: render_schedules(found), output_format, exit_code=int(ExitCode.PASS))
        if is_removed:
            remove_schedule(database, project_name(loaded), name)
            click.echo(f"removed schedule {printable(name)}")
            return
        if cron is None:
            raise UsageError("--cron says when, as in --cron '0 2 * * *'")
        _require_options_of_gate(options["arguments"])
        due_at = next_time(cron, time.time())
        tip = tip_of(options["repository"] or repository_of(loaded), branch)
        saved = Schedule(
            project=project_name(loaded),
            name=name,
            cron=cron,
            branch=branch,
            engine=Engine(engine),
            work=_work(loaded, options, tip, tip),
            machine_classes=classes_of(database, options["classes"], Engine(engine)),
            groups=_groups(loaded, options),
            due_at=due_at,
        )
        _require_engine(database, engine)
        save_schedule(database, saved)
    click.echo(
        f"schedule {printable(name)}: {branch} after {tip[:12]}, next at "
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(due_at))} UTC"
    )
