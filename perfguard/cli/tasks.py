"""What the commands that show a run of a task share."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from perfguard.cli.diagnostics import reader_may_leave
from perfguard.cli.output import print_parts
from perfguard.codec import to_json
from perfguard.errors import UsageError
from perfguard.gate.tasks import recorded_task
from perfguard.host.identity import machine_line
from perfguard.records.tasks import TaskResult
from perfguard.report.terminal.tasks import render_task
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
