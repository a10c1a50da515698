"""A run on another machine, watched through a real ssh and a real sshd that stands for that machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.recorded_runs import DATA
from tests.tiny_projects import wait_for

SSHD, SSH = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("ssh")
LINES = 53
"""What the recorded run has to say."""

pytestmark = pytest.mark.skipif(SSHD is None or SSH is None, reason="ssh or sshd is not installed")

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
CLIENT = """\
Host bench-1
  HostName 127.0.0.1
  Port {port}
  IdentityFile {place}/user
  IdentitiesOnly yes
  UserKnownHostsFile {place}/known
  StrictHostKeyChecking accept-new
"""


class Machine(NamedTuple):
    """An sshd of our own."""

    sshd: subprocess.Popen[bytes]
    path: str
    """The path on which `ssh` knows the name of the machine."""

    def drop_connections(self) -> int:
        """End the sessions, and leave the server; gives how many there were."""
        if self.sshd.poll() is not None:
            return 0
        sessions = psutil.Process(self.sshd.pid).children(recursive=True)
        for session in sessions:
            with suppress(psutil.NoSuchProcess):  # it ended with another one
                session.kill()
        return len(sessions)


@pytest.fixture
def machine(tmp_path, project):
    place = tmp_path / "ssh"
    place.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (place / "server").write_text(SERVER.format(port=port, place=place))
    (place / "client").write_text(CLIENT.format(port=port, place=place))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd drops its privileges
    with (place / "log").open("wb") as log:
        sshd = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(place / "server")], stderr=log)
    # ssh reads its configuration from the home folder that the system knows, not from $HOME.
    script = project.write("bin/ssh", f'#!/bin/sh\nexec {SSH} -F {place}/client "$@"\n')
    script.chmod(0o755)
    found = Machine(sshd, f"{script.parent}:{project.environment['PATH']}")

    def answers() -> bool:
        asked = subprocess.run([str(script), "-o", "BatchMode=yes", "bench-1", "true"], capture_output=True)
        return asked.returncode == 0

    try:
        assert wait_for(answers), (place / "log").read_text()
        yield found
    finally:
        found.drop_connections()
        sshd.send_signal(signal.SIGTERM)
        sshd.wait()


def other_project(tmp_path) -> tuple[Path, bytes]:
    """A project on the other machine, with a run that has not begun, and what the run will have to say."""
    events = tmp_path / "other" / ".perfguard" / "runs" / "20260101T000000-abcdef" / "events.jsonl"
    events.parent.mkdir(parents=True)
    return events, (DATA / "paired" / "events.jsonl").read_bytes()


def test_the_latest_run_of_another_machines_project_is_printed(project, machine, tmp_path):
    events, content = other_project(tmp_path)
    events.write_bytes(content)
    arguments = ("watch", "--host", "ssh:bench-1", "--remote-project", str(tmp_path / "other"))
    done = project.run(*arguments, PATH=machine.path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == project.run("watch", "-f", str(DATA / "paired")).stdout
    assert len(done.stdout.splitlines()) == LINES


def test_a_connection_that_breaks_is_made_again_and_nothing_is_said_twice(project, machine, tmp_path):
    events, content = other_project(tmp_path)
    events.write_bytes(content[: len(content) // 2])
    project.environment["PATH"] = machine.path
    watching = project.start("watch", "-f", "--host", "ssh:bench-1", str(events.parent))
    assert watching.stdout is not None
    first = watching.stdout.readline()
    assert machine.drop_connections()
    with events.open("ab") as file:
        file.write(content[len(content) // 2 :])
    # What the first line left in the stream's buffer, `communicate` would pass over.
    rest = watching.stdout.read()
    _, said = watching.communicate(timeout=300)
    assert watching.returncode == 1, said
    lines = (first + rest).splitlines()
    lost = [line for line in lines if "no connection to bench-1" in line]
    assert len(lost) == 1, lines
    local = project.run("watch", "-f", str(DATA / "paired")).stdout.splitlines()
    assert [line for line in lines if line not in lost] == local


def test_a_machine_that_refuses_is_told_in_one_sentence(project, machine, tmp_path):
    project.environment["PATH"] = machine.path
    done = project.run("watch", "--host", "ssh:bench-1", "--remote-project", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "bench-1 does not answer as expected: " in done.stderr
    machine.sshd.terminate()
    machine.sshd.wait()
    done = project.run("watch", "--host", "ssh:bench-1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr
