"""Runs that are watched from outside while they go on, on small projects whose benchmarks need no torch."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.recorded_runs import DATA


def wait_for(condition, *, seconds=300.0):
    """What a condition gave once it was true; gives up after a generous while."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)
    return found


def recorded(project) -> Path | None:
    """The events of the latest run, once there are some."""
    runs = project.path / ".perfguard" / "runs"
    return next(iter(sorted(runs.glob("*/events.jsonl"), reverse=True)), None) if runs.is_dir() else None


def is_alive(process) -> bool:
    """Whether it still runs: one that nobody has asked about since it ended does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, project, *arguments: str) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            environment = {**project.environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
            os.chdir(project.path)
            os.execve(sys.executable, [sys.executable, "-m", "perfguard", *arguments], environment)
        self.seen = b""
        self.code: int | None = None

    def read(self) -> bytes:
        """All that was drawn so far."""
        while select.select([self.master], [], [], 0.05)[0]:
            try:
                piece = os.read(self.master, 65536)
            except OSError:
                break
            if not piece:
                break
            self.seen += piece
        return self.seen

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def has_ended(self) -> bool:
        self.read()
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()  # what it drew last
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def close(self) -> None:
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


@pytest.fixture
def terminal(project):
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(project, *arguments))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


class TestWatch:
    def test_a_run_is_followed_to_its_end_and_gives_its_exit_code(self, project):
        project.replace("tiny_work.py", "return sum(range(LENGTH))", "raise OSError('no total today')")
        run = project.start("compare", "--max-blocks", "2", "--measure-all")
        wait_for(lambda: recorded(project))
        done = project.run("watch", "-f")
        run.communicate()
        assert done.returncode == run.returncode == 3, done.stderr
        lines = done.stdout.splitlines()
        assert "2 cases of tiny, two arms in interleaved blocks" in lines[0]
        assert any("tiny.sum failed in the candidate: OSError: no total today" in line for line in lines)
        assert any("block 2 took" in line for line in lines)
        assert "run ended, failed, exit code 3" in lines[-1]

    def test_a_recorded_run_is_printed_and_left(self, project):
        done = project.run("watch", str(DATA / "paired"), "--plain")
        assert (done.returncode, done.stderr) == (0, "")
        assert {line.split()[1] for line in done.stdout.splitlines()} == {"-", "!", "x"}
        assert len(done.stdout.splitlines()) == 53
        assert project.run("watch", str(DATA / "paired"), "--plain", "-f").returncode == 1

    def test_a_stdout_that_knows_no_signs_gets_lines_all_the_same(self, project):
        done = project.run("watch", str(DATA / "paired"), PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr, done.stdout.isascii()) == (0, "", True)
        assert len(done.stdout.splitlines()) == 53

    def test_a_run_that_was_killed_is_said_to_have_died(self, project):
        folder = project.path / ".perfguard" / "runs" / "20200101T000000-aaaaaa"
        folder.mkdir(parents=True)
        content = (DATA / "paired" / "events.jsonl").read_bytes().replace(b'"t_wall":17', b'"t_wall":15')
        (folder / "events.jsonl").write_bytes(content[: len(content) // 2])
        done = project.run("watch", "-f")
        assert done.returncode == 3
        assert "the run probably died" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (("watch",), 3, "no run is recorded"),
            (("watch", "absent"), 3, "there is no run 'absent'"),
            (("watch", "--host", "bench-1"), 2, "write ssh:HOST or ssh:USER@HOST"),
            (("watch", "--host", "ssh:-oProxyCommand=x"), 2, "is no host"),
            (("watch", "--remote-project", "x"), 2, "--remote-project belongs to --host"),
            (("tui",), 2, "the TUI needs a terminal"),
            (("tui", "--replay", "absent"), 2, "the TUI needs a terminal"),
            (("run", "--tui"), 2, "the TUI needs a terminal"),
            (("baseline", "update", "--tui"), 2, "the TUI needs a terminal"),
        ],
    )
    def test_what_makes_no_sense_is_one_sentence(self, project, arguments, code, said):
        done = project.run(*arguments)
        assert (done.returncode, said in done.stderr, done.stdout) == (code, True, ""), done.stderr
        assert "Traceback" not in done.stderr
        assert recorded(project) is None

    def test_a_run_on_another_machine_is_followed_through_ssh(self, project):
        script = project.write("bin/ssh", '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
        script.chmod(0o755)
        path = f"{script.parent}:{project.environment['PATH']}"
        done = project.run("watch", "--host", "ssh:bench-1", str(DATA / "paired"), PATH=path)
        assert done.returncode == 1, done.stderr
        assert "run ended, regressed, exit code 1" in done.stdout.splitlines()[-1]

    def test_who_stops_reading_stops_nothing(self, project):
        piped = f"{sys.executable} -m perfguard watch {DATA / 'paired'} | head -n 1"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {piped}"], cwd=project.path, env=project.environment, capture_output=True
        )
        assert (done.returncode, done.stderr) == (0, b"")


class TestUnderTheTui:
    def test_a_command_that_cannot_run_says_why_instead(self, project, terminal):
        pytest.importorskip("textual")
        screen = terminal("compare", "--tui", "--baseline", "git:no-such-revision")
        wait_for(screen.has_ended)
        assert screen.code == 2
        assert b"no-such-revision" in screen.seen

    def test_quitting_leaves_the_run_alone_and_says_how_to_come_back(self, project, terminal):
        pytest.importorskip("textual")
        go = project.path / "go"
        waiting = f"while not os.path.exists({str(go)!r}):\n        time.sleep(0.05)\n    return sum(range(LENGTH))"
        project.replace("tiny_work.py", "LENGTH = 20_000", "import os\nimport time\n\nLENGTH = 20_000")
        project.replace("tiny_work.py", "return sum(range(LENGTH))", waiting)
        screen = terminal("compare", "--tui", "--max-blocks", "2")
        events = wait_for(lambda: screen.has_ended() or recorded(project))
        assert isinstance(events, Path), screen.seen
        wait_for(lambda: b"tiny.sum" in screen.read())
        screen.type("q")
        wait_for(screen.has_ended)
        assert screen.code == 0
        assert f"perfguard tui {events.parent.name}".encode() in screen.seen
        assert b'"run_finished"' not in events.read_bytes()
        go.touch()
        done = project.run("watch", "-f")
        assert "run ended" in done.stdout.splitlines()[-1]
        # The table is printed after the last event.
        wait_for(lambda: "tiny.sum" in (events.parent / "console.log").read_text())

    def test_a_run_that_ended_meanwhile_gives_its_exit_code(self, project, terminal):
        pytest.importorskip("textual")
        project.replace("tiny_work.py", "return sum(range(LENGTH))", "raise OSError('no total today')")
        screen = terminal("compare", "--tui", "--max-blocks", "1")
        wait_for(lambda: (path := recorded(project)) and b'"run_finished"' in path.read_bytes())
        wait_for(lambda: not any(is_alive(child) for child in psutil.Process(screen.pid).children()))
        wait_for(lambda: b"tiny.sum" in screen.read())
        screen.type("q")
        wait_for(screen.has_ended)
        assert screen.code == 3
