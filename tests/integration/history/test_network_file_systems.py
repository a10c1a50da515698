"""A history on a real file system of another machine: sshfs, over a pipe instead of a connection."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfguard.history.database import file_system_of
from tests.tiny_projects import wait_for

SERVER = Path("/usr/lib/openssh/sftp-server")

pytestmark = [
    pytest.mark.skipif(shutil.which("sshfs") is None or not SERVER.exists(), reason="sshfs or sshd is not installed"),
    pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="this machine mounts no FUSE file systems"),
]


@pytest.fixture
def remote_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that an SFTP server serves, mounted."""
    served, place = tmp_path / "served", tmp_path / "mounted"
    served.mkdir()
    place.mkdir()
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as stack:
        for command, end in (
            ([str(SERVER)], theirs),
            (["sshfs", "-f", "-o", "passive", f":{served}", str(place)], ours),
        ):
            process = stack.enter_context(subprocess.Popen(command, stdin=end, stdout=end))
            stack.callback(process.kill)
            end.close()
        stack.callback(subprocess.run, ["fusermount3", "-u", str(place)], check=True)
        assert wait_for(place.is_mount, seconds=20)
        yield place


def test_a_history_on_a_file_system_of_another_machine_is_refused_with_advice(remote_folder, empty_project):
    (remote_folder / "written").write_text("it is writable", encoding="utf-8")
    assert file_system_of(remote_folder) == "fuse.sshfs"
    done = empty_project.run("history", PERFGUARD_DATABASE=str(remote_folder / "history.sqlite"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "fuse.sshfs" in done.stderr
    assert "PostgreSQL" in done.stderr
    assert "Traceback" not in done.stderr
    assert [file.name for file in remote_folder.iterdir()] == ["written"]
