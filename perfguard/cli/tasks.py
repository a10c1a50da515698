"""What the commands that show a run of a task share."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from perfguard.cli.output import print_and_exit
from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.gate.task_audits import RESULT
from perfguard.gate.tasks import recorded_task
from perfguard.host.identity import machine_line
from perfguard.records.task_audits import Audit
from perfguard.records.task_results import TaskResult
from perfguard.report.terminal.tasks import render_audit, render_task
from perfguard.store.files import parse_json
from perfguard.watch.sources.event_sources import host_of


def show_task(folder: Path, output_format: str) -> NoReturn:
    """Print a recorded run, and exit with its code."""
    host = host_of(folder)
    print_task(recorded_task(folder, machine=machine_line(host) if host else "unknown machine"), output_format)


def print_task(found: TaskResult, output_format: str) -> NoReturn:
    """Print a run of a task, and exit with its code."""
    print_and_exit(found, lambda: render_task(found), output_format, exit_code=found.exit_code)


def show_audit(folder: Path, output_format: str) -> NoReturn:
    """Print a recorded audit, and exit with its code.

    Raises:
        StoreError: It was cut off.
    """
    try:
        found = parse_json(folder / RESULT, if_corrupt="run the audit again")
    except FileNotFoundError as error:
        raise StoreError(f"the audit {folder.name} was cut off before its end; run it again") from error
    print_audit(from_builtins(found, Audit, source=str(folder / RESULT)), output_format)


def print_audit(found: Audit, output_format: str) -> NoReturn:
    """Print an audit, and exit with its code."""
    print_and_exit(found, lambda: render_audit(found), output_format, exit_code=found.exit_code)
