"""The TUI as a reader that nobody looks at: in a terminal of its own, stopped and continued from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from perfguard.watch.detached import own_command

_COLUMNS, _LINES = 120, 40
_WAIT_S = 5.0
_START_S = 20.0
_IDLE_OVER_S = 0.5
_IDLE_RATIO = 0.1
_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)"
"""Gives the reader a terminal and throws away what it draws."""


class TerminalReader:
    """`perfguard tui RUN`, watching without being watched."""

    def __init__(self, project: Path) -> None:
        """Start nothing yet.

        Args:
            project: Where the reader is started.
        """
        self._project = project
        self._process: psutil.Popen | None = None

    @property
    def text(self) -> str:
        """Its command line."""
        return "perfguard tui"

    def start(self, folder: Path) -> None:
        """Watch a run; comes back when starting up costs nothing any more."""
        size = {"COLUMNS": str(_COLUMNS), "LINES": str(_LINES), "TERM": "xterm-256color"}
        self._process = psutil.Popen(
            [sys.executable, "-c", _TERMINAL, *own_command(), "tui", "--read-only", str(folder)],
            cwd=self._project,
            env={**os.environ, **size},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._settle()

    def _settle(self) -> None:
        """Wait until it idles: what is asked is what watching costs, not what beginning to watch does."""
        until = time.monotonic() + _START_S
        before_s: float | None = None
        while time.monotonic() < until:
            time.sleep(_IDLE_OVER_S)
            now_s = self.cpu_s()
            if before_s is not None and now_s is not None and now_s - before_s < _IDLE_RATIO * _IDLE_OVER_S:
                return
            before_s = now_s

    def suspend(self) -> None:
        """Stop the TUI, as Ctrl-Z does, so that it puts its threads away; one that does not listen is stopped hard."""
        readers = self._processes()[1:]
        for process in readers:
            _quietly(partial(process.send_signal, signal.SIGTSTP))
        until = time.monotonic() + _WAIT_S
        while not all(map(_is_stopped, readers)):
            if time.monotonic() > until:
                for process in readers:
                    _quietly(process.suspend)
                return
            time.sleep(0.05)

    def resume(self) -> None:
        """Let it go on, where it was stopped."""
        for process in self._processes()[1:]:
            if _is_stopped(process):
                _quietly(process.resume)

    def is_alive(self) -> bool:
        """Whether the TUI runs in its terminal."""
        return len(self._processes()) > 1

    def cpu_s(self) -> float | None:
        """CPU seconds of the TUI; what the terminal takes is not the reader's."""
        try:
            times = [process.cpu_times() for process in self._processes()[1:]]
        except psutil.Error:
            return None
        return sum(time.user + time.system for time in times) if times else None

    def stop(self) -> None:
        """End all of its processes."""
        processes = self._processes()
        for process in processes:
            _quietly(process.resume)
            _quietly(process.terminate)
        _, alive = psutil.wait_procs(processes, timeout=_WAIT_S)
        for process in alive:
            _quietly(process.kill)
        psutil.wait_procs(alive, timeout=_WAIT_S)

    def _processes(self) -> list[psutil.Process]:
        """The terminal first, then what runs in it."""
        if self._process is None:
            return []
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return []


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
    except psutil.Error:  # it has ended
        return True


def _quietly(action: Callable[[], None]) -> None:
    """Do something to a process that may have ended meanwhile."""
    with suppress(psutil.Error):
        action()
