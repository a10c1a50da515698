"""Recording a run in the history once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from perfguard.config import LoadedConfig
from perfguard.errors import PerfguardError
from perfguard.records.run_data import RunData
from perfguard.units import printable


def recorder(loaded: LoadedConfig) -> Callable[[Path, RunData], None]:
    """What a request calls at its end."""
    return partial(_record, loaded)


def _record(loaded: LoadedConfig, folder: Path, data: RunData) -> None:
    """Record a run; where that fails, say so and go on: the next `perfguard history` reads its folder."""
    from perfguard.history.recording import record_run

    try:
        record_run(loaded, folder, data)
    except (PerfguardError, OSError) as error:
        click.echo(f"perfguard: the run is not in the history yet: {printable(str(error))}", err=True)
