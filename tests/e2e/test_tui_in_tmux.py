"""The real command in a real terminal, from start to quit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("textual", reason="the TUI needs textual")

RECORDING = Path(__file__).parents[1] / "data" / "runs" / "paired"
WAIT_S = 200.0

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed, so there is no terminal")


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path, environment: dict[str, str]) -> None:
        self._socket = socket
        self._base = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._environment = environment

    def start(self, command: str, cwd: Path, *, size: tuple[int, int] = (120, 40)) -> None:
        width, height = map(str, size)
        wait = f"{command}; echo exited with $?; sleep {WAIT_S}"
        self._tmux("new-session", "-d", "-x", width, "-y", height, "-c", str(cwd), "sh", "-c", wait)

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def text(self) -> str:
        return self._tmux("capture-pane", "-p").stdout

    def wait_for(self, *words: str) -> str:
        """What is on the screen, once all words are; fails as soon as the command has ended without them."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            shown = self.text()
            if all(word in shown for word in words):
                return shown
            if re.search(r"exited with \d", shown):
                break
            time.sleep(0.25)
        above = self._tmux("capture-pane", "-p", "-S", "-200").stdout  # a crash is longer than the screen
        pytest.fail(f"{words} did not come up:\n{above}")

    def close(self) -> None:
        """End the server, and wait until its processes have gone."""
        self._tmux("kill-server", check=False)
        end = time.monotonic() + WAIT_S
        while self._lives() and time.monotonic() < end:
            time.sleep(0.05)

    def _lives(self) -> bool:
        return any(str(self._socket) in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))

    def _tmux(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._base, *arguments], env=self._environment, capture_output=True, text=True, check=check, timeout=30
        )


@pytest.fixture
def terminal(tmp_path, project):
    environment = {
        **{name: value for name, value in project.environment.items() if name not in ("NO_COLOR", "TMUX")},
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONFAULTHANDLER": "1",  # a crash shows where each thread was
    }
    # A socket's path may have about a hundred characters, which a test's own folder can exceed.
    socket = Path("/tmp") / f"perfguard-test-{os.getpid()}.tmux"
    made = Terminal(socket, environment)
    yield made
    made.close()
    socket.unlink(missing_ok=True)


@pytest.fixture
def with_recording(project):
    runs = project.path / ".perfguard" / "runs"
    runs.mkdir(parents=True)
    shutil.copytree(RECORDING, runs / "recorded")
    return project.path


PERFGUARD = f"{sys.executable} -m perfguard"


def test_a_recorded_run_is_watched_from_start_to_quit(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]", "▲ regressed", "✓ finished")
    terminal.keys("n", "d")
    terminal.wait_for("[3 Ops]")
    terminal.keys("4")
    terminal.wait_for("[4 History]")
    terminal.keys("5")
    terminal.wait_for("[5 Host]", "governor")
    terminal.keys("6")
    terminal.wait_for("[6 Log]", "since start")
    terminal.keys("?")
    terminal.wait_for("show all keys and signs")
    terminal.keys("Escape")
    terminal.wait_for("since start")
    terminal.keys("q")
    shown = terminal.wait_for("exited with 0")
    assert "Traceback" not in shown


def test_the_first_run_of_a_project_appears_by_itself(terminal, project) -> None:
    terminal.start(f"{PERFGUARD} tui", project.path)
    terminal.wait_for("[1 Live]", "no run is recorded here yet: R starts one")
    runs = project.path / ".perfguard" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    shutil.copytree(RECORDING, runs / "recorded")
    terminal.wait_for("▲ regressed", "✓ finished")
    terminal.keys("q")
    terminal.wait_for("exited with 0")


def test_what_is_typed_at_once_after_the_filters_key_runs_no_command(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]", "kernel.reorder")
    terminal.keys("/6q")
    terminal.keys("lstm", "Enter")
    assert "[1 Live]" in terminal.wait_for("lstm  esc shows all")


def test_a_job_in_the_background_comes_back(terminal, with_recording) -> None:
    terminal.start(
        f"bash -ic '{PERFGUARD} tui recorded; echo stopped with $?; until test -e go; do sleep 0.1; done; fg'",
        with_recording,
    )
    terminal.wait_for("[1 Live]", "✓ finished")
    terminal.keys("C-z")
    shown = terminal.wait_for("stopped with")
    (with_recording / "go").touch()
    terminal.wait_for("[1 Live]", "✓ finished")
    terminal.keys("q")
    terminal.wait_for("exited with 0")
    assert re.search(r"stopped with 14[78]", shown), shown  # 128 and the signal, which textual chooses


def test_a_terminal_that_shrinks_and_grows_is_followed(terminal, with_recording) -> None:
    # Some shells export the size that they saw last.
    terminal.start(f"COLUMNS=80 LINES=24 {PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]")
    terminal.resize(20, 5)
    terminal.wait_for("too small")
    terminal.resize(80, 24)
    terminal.wait_for("[1 Live]", "▲ regressed")
    terminal.keys("q")
    assert "Traceback" not in terminal.wait_for("exited with 0")


def test_a_replay_plays_its_recording(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui --replay recorded --speed 10x", with_recording)
    terminal.wait_for("replay 0:0", "x10")
    terminal.keys("Space")
    terminal.wait_for("stands")
    terminal.keys("q")
    terminal.wait_for("exited with 0")


def test_a_folder_that_vanishes_is_a_message(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]", "▲ regressed")
    shutil.rmtree(with_recording / ".perfguard" / "runs" / "recorded")
    terminal.wait_for("vanished", "▲ regressed")
    terminal.keys("q")
    assert "Traceback" not in terminal.wait_for("exited with 0")


def test_without_colour_no_colour_is_written(terminal, with_recording) -> None:
    terminal.start(f"NO_COLOR=1 {PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]")
    coloured = terminal._tmux("capture-pane", "-p", "-e").stdout
    assert "\x1b[38;" not in coloured
    assert "\x1b[31m" not in coloured
    terminal.keys("q")
    terminal.wait_for("exited with 0")


def test_a_signal_ends_it_and_gives_the_terminal_back(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui recorded", with_recording)
    terminal.wait_for("[1 Live]", "✓ finished")
    own = [
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [])[1:] == ["-m", "perfguard", "tui", "recorded"]
        and process.cwd() == str(with_recording)
    ]
    own[0].terminate()
    shown = terminal.wait_for("exited with 143")
    assert "[1 Live]" not in shown


def test_closed_streams_are_no_terminal(with_recording) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {PERFGUARD} tui recorded <&-"],
        cwd=with_recording,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "terminal" in done.stderr


def test_a_speed_without_a_replay_is_refused(terminal, with_recording) -> None:
    terminal.start(f"{PERFGUARD} tui recorded --speed 10x", with_recording)
    terminal.wait_for("--speed is that of a replay", "exited with 2")
