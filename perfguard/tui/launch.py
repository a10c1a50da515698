"""Starts the application: what textual reads from the environment is set before it is imported."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from perfguard.errors import ExitCode, UsageError
from perfguard.tui.keymap import checked_keys
from perfguard.tui.options import TuiOptions, Watch

_SETTINGS = {"TEXTUAL_FPS": "10", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0"}
"""Ten frames a second are enough for keys; nothing moves by itself. Set values of the user's own stay."""


def run_app(watch: Watch, options: TuiOptions) -> int:
    """Show a run until the user quits.

    Args:
        watch: The run.
        options: How to show it.

    Returns:
        An exit code: 0 where the user left, 143 after SIGTERM, 3 where the application broke.

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
