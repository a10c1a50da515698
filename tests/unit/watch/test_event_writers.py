"""Who holds a run's events."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perfguard.watch.sources.event_writers import WriterSearch, recording_of

HOLD = "import sys; file = open(sys.argv[1], sys.argv[2]); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def recording(tmp_path):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    path = folder / "events.jsonl"
    path.touch()
    return path


@pytest.fixture
def held(recording):
    """A process that has the recording open, in a mode."""
    processes = []

    def hold(mode: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(recording), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield hold
    for process in processes:
        process.communicate("")


def test_a_process_that_has_it_open_for_writing_writes_it(recording, held):
    search = WriterSearch(recording)
    assert search.has_writer() is False
    process = held("ab")
    assert [search.has_writer(), search.has_writer()] == [True, True]
    process.communicate("")
    assert search.has_writer() is False


def test_who_only_reads_it_is_no_writer(recording, held):
    held("rb")
    assert WriterSearch(recording).has_writer() is False


def test_of_a_file_that_is_not_there_nothing_is_known(recording):
    recording.unlink()
    assert WriterSearch(recording).has_writer() is None


def test_of_a_kernel_that_tells_nothing_nothing_is_known(recording, tmp_path):
    assert WriterSearch(recording, proc=tmp_path / "no-proc").has_writer() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_root_sees_the_writers_of_other_users_files(recording, held):
    os.chown(recording, 12345, -1)
    held("ab")
    assert WriterSearch(recording).has_writer() is True


def test_the_run_that_a_process_records_is_found(recording, held, tmp_path):
    process = held("ab")
    assert recording_of(process.pid, tmp_path / "runs") == recording.parent
    assert recording_of(process.pid, tmp_path) is None
    process.communicate("")
    assert recording_of(process.pid, tmp_path / "runs") is None
