"""A run on another machine: `ssh` is a small script here that runs the command where it stands."""

from __future__ import annotations

import time

import pytest

from perfguard.errors import StoreError, UsageError
from perfguard.watch.sources.remote_source import RETRY_S, RemoteSource, latest_remote_run
from tests.recorded_runs import DATA

GOOD = 'shift\nexec sh -c "$*"\n'
LOST = 'echo "ssh: connect to host $1 port 22: Connection refused" >&2\nexit 255\n'


@pytest.fixture
def ssh(tmp_path):
    def make(body: str = GOOD) -> tuple[str, ...]:
        script = tmp_path / "ssh"
        script.write_text("#!/bin/sh\n" + body)
        script.chmod(0o755)
        return (str(script),)

    return make


@pytest.fixture
def opened():
    sources: list[RemoteSource] = []

    def open_source(*arguments, **options) -> RemoteSource:
        sources.append(RemoteSource(*arguments, **options))
        return sources[-1]

    yield open_source
    for source in sources:
        source.close()


def poll_until(source, condition, *, seconds=20.0):
    """All updates up to the one that fulfils the condition."""
    updates = []
    until = time.monotonic() + seconds
    while True:
        updates.append(source.poll())
        if condition(updates[-1]):
            return updates
        assert time.monotonic() < until, updates[-3:]
        time.sleep(0.02)


def events_of(source, count):
    """All updates up to the one that completes so many events: a pipe may give them in pieces."""
    seen = []

    def is_complete(update):
        seen.extend(update.events)
        return len(seen) >= count

    return poll_until(source, is_complete), seen


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "project" / ".perfguard" / "runs" / "it's a run"
    path.mkdir(parents=True)
    (path / "events.jsonl").write_bytes((DATA / "rounds" / "events.jsonl").read_bytes())
    (path / "plan.json").write_bytes(b"{}")
    return path


def test_the_events_and_files_of_the_other_machine_come_as_they_are_there(ssh, opened, folder):
    source = opened("bench-1", str(folder), ssh=ssh())
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    _, before = events_of(source, len(lines))
    with (folder / "events.jsonl").open("ab") as file:
        file.write(lines[-1])
    _, after = events_of(source, 1)
    assert [seen.seq for seen in (*before, *after)] == [*range(len(lines)), len(lines) - 1]
    assert source.read_file("plan.json") == b"{}"
    assert source.name == f"bench-1:{folder}"


def test_files_that_are_none_or_lie_elsewhere_are_not_given(ssh, opened, folder):
    source = opened("bench-1", str(folder), ssh=ssh())
    assert [source.read_file(name) for name in ("absent", "../../x")] == [None, None]


def test_the_other_machines_clock_is_learnt_from_its_events(ssh, opened, folder):
    ahead_s = 500.0
    source = opened("bench-1", str(folder), ssh=ssh(), wall=lambda: 1_790_000_000.0 + ahead_s)
    assert source.wall_s(10.0) == 10.0
    poll_until(source, lambda update: bool(update.events))
    assert ahead_s - 60.0 < 10.0 - source.wall_s(10.0) <= ahead_s


def test_a_lost_connection_is_said_and_tried_again_later(ssh, opened, folder):
    now_s = [0.0]
    source = opened("bench-1", str(folder), ssh=ssh(LOST), clock=lambda: now_s[0])
    lost = poll_until(source, lambda update: bool(update.problems))[-1]
    assert lost.problems[0].code == "remote.no_connection"
    assert lost.problems[0].values["problem"] == "ssh: connect to host bench-1 port 22: Connection refused"
    ssh(GOOD)
    assert source.poll().events == ()
    now_s[0] += RETRY_S
    assert poll_until(source, lambda update: bool(update.events))[-1].problems == ()


def test_a_connection_that_broke_goes_on_where_it_was(ssh, opened, folder):
    now_s = [0.0]
    source = opened("bench-1", str(folder), ssh=ssh(), clock=lambda: now_s[0])
    written = len((folder / "events.jsonl").read_bytes().splitlines())
    events_of(source, written)
    source.close()
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"event":"note","seq":%d,"level":"info","text":"more"}\n' % written)
    updates, more = events_of(source, 1)
    assert ([seen.seq for seen in more], updates[-1].problems) == ([written], ())


def test_a_connection_that_broke_within_a_line_reads_it_once(ssh, opened, folder):
    content = (folder / "events.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    cut = len(b"".join(lines[:5])) + 20
    (folder / "events.jsonl").write_bytes(content[:cut])
    source = opened("bench-1", str(folder), ssh=ssh())
    before = [seen for update in poll_until(source, lambda update: update.is_cut) for seen in update.events]
    source.close()
    with (folder / "events.jsonl").open("ab") as file:
        file.write(content[cut:])
    updates, after = events_of(source, len(lines) - len(before))
    assert [seen.seq for seen in (*before, *after)] == [*range(len(lines))]
    assert [update.problems for update in updates if update.problems] == []


def test_a_file_that_vanishes_there_is_gone_here(ssh, opened, folder):
    source = opened("bench-1", str(folder), ssh=ssh())
    poll_until(source, lambda update: bool(update.events))
    (folder / "events.jsonl").unlink()
    assert poll_until(source, lambda update: update.is_gone)[-1].problems[0].code == "recording.vanished"


def test_a_run_that_is_not_there_yet_is_waited_for(ssh, opened, folder):
    content = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").unlink()
    source = opened("bench-1", str(folder), ssh=ssh())
    for _ in range(20):
        update = source.poll()
        assert (update.events, update.is_gone) == ((), False)
        time.sleep(0.02)
    (folder / "events.jsonl").write_bytes(content)
    assert poll_until(source, lambda update: bool(update.events))[-1].problems == ()


def test_a_machine_without_ssh_says_so(opened, tmp_path):
    source = opened("bench-1", "/runs/a", ssh=(str(tmp_path / "no-such-ssh"),))
    assert source.poll().problems[0].code == "remote.no_ssh"


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", "", "a b", "a;b", "$(id)"])
def test_a_host_that_is_none_is_refused(host):
    with pytest.raises(UsageError, match="is no host"):
        RemoteSource(host, "/runs/a")


def test_the_latest_run_of_a_project_is_found(ssh, folder):
    older = folder.parent / "20260101T000000-aaaaaa"
    older.mkdir()
    (older / "events.jsonl").touch()
    newer = folder.parent / "20260102T000000-bbbbbb"
    newer.mkdir()
    (newer / "events.jsonl").touch()
    (folder / "events.jsonl").unlink()
    assert latest_remote_run("bench-1", str(folder.parents[2]), ssh=ssh()) == str(newer)


def test_a_project_without_runs_and_a_host_that_does_not_answer_say_so(ssh, tmp_path):
    with pytest.raises(StoreError, match="bench-1 does not answer as expected"):
        latest_remote_run("bench-1", str(tmp_path / "nothing"), ssh=ssh())
    with pytest.raises(StoreError, match="Connection refused"):
        latest_remote_run("bench-1", str(tmp_path), ssh=ssh(LOST))
