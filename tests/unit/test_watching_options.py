"""What options say of the run that is to be watched."""

from __future__ import annotations

import shutil

import pytest

from perfguard.cli.watching import find_source, parse_speed
from perfguard.config import load_config
from perfguard.errors import PerfguardError, StoreError, UsageError
from perfguard.watch.sources.event_sources import LocalSource, ReplaySource
from perfguard.watch.sources.remote_source import RemoteSource
from tests.recorded_runs import DATA


@pytest.fixture
def loaded(tmp_path):
    for name in ("paired", "rounds"):
        shutil.copytree(DATA / name, tmp_path / ".perfguard" / "runs" / name)
    return load_config(tmp_path, {}, {})


@pytest.mark.parametrize(("text", "speed"), [("10x", 10.0), ("0.5", 0.5), ("1e3x", 1000.0), ("max", 1e9)])
def test_a_speed_is_a_factor(text, speed):
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["0", "-1x", "fast", "", "x", "nan", "inf", "1e99"])
def test_what_is_no_speed_is_refused(text):
    with pytest.raises(UsageError, match="above zero, or max"):
        parse_speed(text)


def test_without_a_name_the_latest_run_is_watched(loaded):
    source = find_source(loaded, {})
    assert isinstance(source, LocalSource)
    assert source.folder == loaded.project / ".perfguard" / "runs" / "rounds"


def test_a_run_is_found_by_its_id_or_its_path(loaded):
    for name in ("paired", str(DATA / "paired")):
        source = find_source(loaded, {"run": name})
        assert source.folder is not None
        assert source.folder.name == "paired"


def test_a_replay_has_its_speed(loaded):
    source = find_source(loaded, {"replay": "paired", "speed": "10x"})
    assert isinstance(source, ReplaySource)
    assert source.speed == 10.0


def test_a_run_on_another_machine_is_named_by_id_or_path(loaded):
    named = {"host": "ssh:me@bench-1", "remote_project": "work/model"}
    by_id = find_source(loaded, {**named, "run": "paired"})
    by_path = find_source(loaded, {**named, "run": "/elsewhere/paired"})
    assert isinstance(by_id, RemoteSource)
    assert (by_id.name, by_path.name) == (
        "me@bench-1:work/model/.perfguard/runs/paired", "me@bench-1:/elsewhere/paired",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"run": "paired", "replay": "paired", "speed": "1x"}, UsageError, "leave RUN and --host out"),
        ({"host": "ssh:a", "replay": "paired", "speed": "1x"}, UsageError, "leave RUN and --host out"),
        ({"host": "bench-1", "run": "paired"}, UsageError, "write ssh:HOST"),
        ({"host": "ssh:", "run": "paired"}, UsageError, "write ssh:HOST"),
        ({"host": "http:bench-1", "run": "paired"}, UsageError, "write ssh:HOST"),
        ({"remote_project": "x"}, UsageError, "belongs to --host"),
        ({"run": "absent"}, StoreError, "there is no run 'absent'"),
        ({"replay": "absent", "speed": "1x"}, StoreError, "there is no run 'absent'"),
    ],
)
def test_what_makes_no_sense_is_said(loaded, options, kind, said):
    with pytest.raises(PerfguardError, match=said) as raised:
        find_source(loaded, options)
    assert type(raised.value) is kind
