"""What the commands that show a run of heterogeneous training share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from perfguard.cli.output import print_and_exit, print_parts
from perfguard.codec import to_json
from perfguard.hetero.simulated import Balance, Basis
from perfguard.host.identity import machine_line
from perfguard.records.training import Training
from perfguard.report.terminal.training import render_balances, render_training
from perfguard.runner.training import recorded_training
from perfguard.watch.sources.event_sources import host_of


def show_training(folder: Path, output_format: str) -> NoReturn:
    """Print a recorded run, and exit with its code.

    Raises:
        UsageError: The format is one of gates alone.
    """
    host = host_of(folder)
    found = recorded_training(folder, machine=machine_line(host) if host else "unknown machine")
    if found is None:
        raise click.exceptions.Exit(0)
    print_training(found, output_format)


def print_balances(found: Mapping[str, Balance], basis: Basis, output_format: str) -> None:
    """Print balances by name, such as `simulated` and `live`."""
    if output_format == "json":
        click.echo(to_json(found, indent=1))
    else:
        print_parts(lambda _: render_balances(found, basis))


def print_training(found: Training, output_format: str) -> NoReturn:
    """Print a run, and exit with its code."""
    print_and_exit(found, lambda: render_training(found), output_format, exit_code=found.exit_code)
