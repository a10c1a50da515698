from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perfguard
from perfguard.errors import HostUnfitError
from perfguard.host.lock import host_lock, lock_path

HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from perfguard.host.lock import host_lock
with host_lock(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    source = str(Path(perfguard.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, source, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_holder_is_refused_and_told_who_holds_it(holder, tmp_path):
    with pytest.raises(HostUnfitError, match=rf"another run .* \(perfguard run, pid {holder.pid}, since 20"):
        with host_lock(tmp_path / "lock"):
            pytest.fail("two runs hold the host")


def test_whoever_waits_is_told_of_the_holder_and_gets_the_lock_after_it(holder, tmp_path, monkeypatch):
    monkeypatch.setattr("perfguard.host.lock._LOOK_S", 0.01)
    monkeypatch.setattr("perfguard.host.lock._SAY_S", 0.02)
    said = []

    def waiting(owner, waited_s):
        said.append((owner, waited_s))
        if len(said) == 3:
            holder.kill()
            holder.wait()

    with host_lock(tmp_path / "lock", command="gate", waiting=waiting):
        own = json.loads((tmp_path / "lock").read_text())
        assert (own["pid"], own["command"]) == (os.getpid(), "gate")
    assert len(said) == 3
    assert all(owner.startswith(f"perfguard run, pid {holder.pid}, since 20") for owner, _ in said)


def test_the_same_process_cannot_hold_it_twice(tmp_path):
    with host_lock(tmp_path / "lock"), pytest.raises(HostUnfitError, match=f"pid {os.getpid()}"):
        with host_lock(tmp_path / "lock"):
            pytest.fail("two runs hold the host")


def test_a_lock_whose_holder_was_killed_is_taken(holder, tmp_path):
    holder.kill()
    holder.wait()
    with host_lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_it_is_free_again_after_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="inside"), host_lock(tmp_path / "lock"):
        raise RuntimeError("inside")
    with host_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()


def test_rubbish_in_the_file_is_no_obstacle(tmp_path):
    (tmp_path / "lock").write_bytes(b"\xff\0 not json" * 100)
    with host_lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_an_owner_that_cannot_be_read_is_unknown(holder, tmp_path):
    (tmp_path / "lock").write_text("[]")
    with pytest.raises(HostUnfitError, match="owner unknown"), host_lock(tmp_path / "lock"):
        pytest.fail("two runs hold the host")


def test_a_place_that_cannot_be_written_is_named_with_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostUnfitError, match="cannot be opened.*set TMPDIR"), host_lock(tmp_path / "file" / "lock"):
        pytest.fail("held without a file")


def test_the_lock_lies_where_all_users_of_the_host_find_it():
    assert lock_path().name == "perfguard-host.lock"
    assert lock_path().parent.is_dir()


def test_a_file_that_another_user_left_is_locked_without_being_written(tmp_path, monkeypatch):
    """In a sticky folder Linux refuses to create or write it, and still lets it be opened and locked."""
    path = tmp_path / "lock"
    path.write_text('{"pid": 1, "started": "2020"}')
    plain_open = os.open

    def sticky_open(file, flags, *mode, **where):
        if Path(file) == path and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(file))
        return plain_open(file, flags, *mode, **where)

    monkeypatch.setattr(os, "open", sticky_open)
    with host_lock(path):
        assert path.read_text() == '{"pid": 1, "started": "2020"}'
        with pytest.raises(HostUnfitError, match="perfguard run, pid 1, since 2020"), host_lock(path):
            pytest.fail("two runs hold the host")
    with host_lock(path):
        pass


def test_a_file_that_another_user_closed_to_all_is_named(tmp_path, monkeypatch):
    def refuse(file, flags, *mode, **where):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(HostUnfitError, match="Permission denied"), host_lock(tmp_path / "lock"):
        pytest.fail("held without a file")
