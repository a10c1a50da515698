"""A measuring command as a process of its own, so that whoever started it may leave; its output goes to a file."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from perfguard.errors import StoreError
from perfguard.watch.sources.event_writers import recording_of

CONSOLE_FILE = "console.log"
_EVERY_S = 0.1
_SETTLES_S = 1.0


class DetachedRun:
    """A command that was started in a session of its own: no terminal's end and no Ctrl-C reaches it."""

    def __init__(self, arguments: Sequence[str], project: Path) -> None:
        """Start perfguard with these arguments; its runs are recorded in the project.

        Raises:
            StoreError: The project cannot be written.
        """
        self._runs = project / ".perfguard" / "runs"
        self.console = self._runs.parent / f"console-{secrets.token_hex(4)}.log"
        """File with what it prints."""
        try:
            self.console.parent.mkdir(parents=True, exist_ok=True)
            with self.console.open("wb") as output:
                self._process = subprocess.Popen(
                    [*own_command(), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise StoreError(f"the run cannot be started from {project}: {error}") from error

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def wait_for_folder(self) -> Path | None:
        """The run's folder, once it has made one and went on; None where the command ended at once."""
        while self.exit_code() is None:
            folder = recording_of(self.pid, self._runs)
            if folder is not None:
                with suppress(OSError):  # the process goes on writing into the same file
                    self.console.replace(folder / CONSOLE_FILE)
                    self.console = folder / CONSOLE_FILE
                with suppress(subprocess.TimeoutExpired):  # it may end at once, as where an arm cannot be resolved
                    self._process.wait(_SETTLES_S)
                return folder if self.exit_code() is None else None
            time.sleep(_EVERY_S)
        return None

    def interrupt(self) -> None:
        """Ask it to end in an orderly way, as Ctrl-C does, and wait until it has."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def take_console(self) -> str:
        """What it printed; the file goes away where there is no run's folder that it belongs to."""
        text = self.console.read_text(encoding="utf-8", errors="replace")
        if self.console.name != CONSOLE_FILE:
            self.console.unlink(missing_ok=True)
        return text


def own_command() -> list[str]:
    """How this perfguard is started again: by the script that started it, else as a module."""
    script = Path(sys.argv[0])
    if script.name == "perfguard" and script.is_file():
        return [sys.executable, str(script)]
    return [sys.executable, "-m", "perfguard"]
