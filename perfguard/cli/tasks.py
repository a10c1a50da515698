"""What the commands that show a run of a task share."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from perfguard.cli.diagnostics import reader_may_leave
from perfguard.cli.output import print_parts
from perfguard.codec import from_builtins, to_json
from perfguard.errors import UsageError
from perfguard.gate.task_audits import RESULT
from perfguard.gate.tasks import recorded_task
from perfguard.host.identity import machine_line
from perfguard.records.task_audits import Audit
from perfguard.records.tasks import TaskResult
from perfguard.report.terminal.tasks import render_audit, render_task
from perfguard.store.files import parse_json
from perfguard.watch.sources.event_sources import host_of


def show_task(folder: Path, output_format: str) -> NoReturn:
    """Print a recorded run, and exit with its code."""
    host = host_of(folder)
    print_task(recorded_task(folder, machine=machine_line(host) if host else "unknown machine"), output_format)


def print_task(found: TaskResult, output_format: str) -> NoReturn:
    """Print a run of a task, and exit with its code.

    Raises:
        UsageError: The format is one of gates alone.
    """
    if output_format not in ("table", "json"):
        raise UsageError(f"--format {output_format} is for gates; a task is shown as table or json")
    with reader_may_leave():
        if output_format == "json":
            click.echo(to_json(found, indent=1))
        else:
            print_parts(lambda _: render_task(found))
    raise click.exceptions.Exit(found.exit_code)


def show_audit(folder: Path, output_format: str) -> NoReturn:
    """Print a recorded audit, and exit with its code.

    Raises:
        StoreError: It was cut off.
    """
    found = parse_json(folder / RESULT, if_corrupt="run the audit again")
    print_audit(from_builtins(found, Audit, source=str(folder / RESULT)), output_format)


def print_audit(found: Audit, output_format: str) -> NoReturn:
    """Print an audit, and exit with its code."""
    with reader_may_leave():
        if output_format == "json":
            click.echo(to_json(found, indent=1))
        else:
            print_parts(lambda _: render_audit(found))
    raise click.exceptions.Exit(found.exit_code)
