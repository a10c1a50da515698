"""What the application is started with, and its start. Imports nothing that draws before it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perfguard.errors import ExitCode, UsageError
from perfguard.records.fleet import FleetNow
from perfguard.records.history import History
from perfguard.records.machine.fingerprint import CheckResult
from perfguard.records.tuning import TuningNow
from perfguard.tui.keymap import checked_keys
from perfguard.watch.sources.recorded_runs import RecordedRun
from perfguard.watch.view.watching import RunWatch

_SETTINGS = {"TEXTUAL_FPS": "10", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""Ten frames a second are enough for keys; nothing moves by itself. Set values of the user's own stay."""


class StartedCommand(Struct, frozen=True, kw_only=True):
    """What became of a command that the user asked for."""

    sentence: str  # What was started and where its output is, or why not
    watch: RunWatch | None = None  # The new run, to be watched instead; None to stay with the old one


class TuiOptions(Struct, frozen=True, kw_only=True):
    """How the application is started."""

    run_name: str = ""  # The run as commands know it: an id or a path; empty for the latest one
    theme: str | None = None  # Name of a theme; None for one that suits the terminal
    is_ascii: bool = False  # Whether to draw with ASCII only
    is_local: bool = True  # Whether the run is measured on this machine
    interval_s: float = 1.0  # Seconds between two looks at the events
    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys for bindings, by the binding's id: `{"pause": "p"}`."""
    housekeeping: str = ""  # What was done to keep this process away from the measured CPUs, one sentence
    read_history: Callable[[], History] | None = None
    """Series over the recorded runs; None where there are none to read."""
    read_fleet: Callable[[], FleetNow] | None = None  # Hosts and submissions; None where there are none to read
    read_tuning: Callable[[], TuningNow | None] | None = None  # The newest tuning; None where there is none to read
    read_checks: Callable[[], tuple[CheckResult, ...]] | None = None  # The doctor's rows for this machine
    start_command: Callable[[tuple[str, ...]], StartedCommand] | None = None
    """Starts `perfguard` with these arguments as a process of its own; None where nothing may be started."""
    list_runs: Callable[[], tuple[RecordedRun, ...]] | None = None
    """The project's runs, newest first; None where they are on another machine."""
    open_run: Callable[[str], RunWatch] | None = None  # Watches one of them, by its name
    hint: str = ""  # What to say while there is nothing to read


def run_app(watch: RunWatch, options: TuiOptions) -> int:
    """Show a run until the user quits; the exit code is 0 then, 143 after SIGTERM, 3 where the application broke.

    What textual reads from the environment is set before it is imported.

    Raises:
        ConfigError: A key is remapped to what cannot be.
        UsageError: There is no such theme.
        ModuleNotFoundError: textual is not installed.
    """
    options = replace(options, keys=checked_keys(options.keys))
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if sys.__stdout__ is not None and sys.__stdout__.isatty():
        # Exported sizes win over the terminal's own, which may change at any time.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    if os.environ.get("NO_COLOR") == "":
        # An empty one means that colour is wanted; textual looks only at whether it is there.
        del os.environ["NO_COLOR"]

    from perfguard.tui.app import PerfguardApp
    from perfguard.tui.reader_app import TERMINATED

    app = PerfguardApp(watch, options)
    if options.theme is not None and options.theme not in app.available_themes:
        raise UsageError(f"there is no theme {options.theme!r}; choose from {', '.join(sorted(app.available_themes))}")
    app.run()
    code = app.return_code or 0
    return code if code in (0, TERMINATED) else ExitCode.INFRASTRUCTURE
