"""`perfguard env create`: what goes wrong with stacks, each with its sentence. The real one is in tests/measuring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfguard.errors import ArmError, HostUnfitError, MeasurementError, UsageError
from perfguard.runner.arms import venvs
from perfguard.runner.arms.venvs import IPEX, check_environment, create, environments_home, ready_environment
from tests.changed_values import replace

MISMATCH = (
    "ERROR! Intel® Extension for PyTorch* needs to work with PyTorch 2.8.*, but PyTorch 2.13.0+cpu is found. "
    "Please switch to the matching version and run again."
)


@pytest.fixture
def interpreter(tmp_path):
    """Makes an executable that answers the check with the given shell commands."""

    def make(commands: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)
        return path

    return make


def test_the_check_gives_the_versions_that_were_imported(interpreter):
    python = interpreter("""echo noise; echo 'PERFGUARD {"torch": "2.8.0", "ipex": "2.8.0"}'""")
    assert check_environment(IPEX, python) == {"torch": "2.8.0", "ipex": "2.8.0"}


def test_versions_that_do_not_belong_together_are_named_in_the_stack_s_own_words(interpreter):
    python = interpreter(f"echo '{MISMATCH}'; echo \"AttributeError: module 'os' has no attribute 'exit'\" >&2; exit 1")
    with pytest.raises(MeasurementError, match=r"versions do not fit .*2\.13\.0"):
        check_environment(IPEX, python)


def test_a_cpu_that_the_stack_refuses_is_unfit(interpreter):
    python = interpreter("echo 'ERROR! only works on machines with instruction sets equal or newer than AVX2'; exit 1")
    with pytest.raises(HostUnfitError, match="needs a CPU with AVX2"):
        check_environment(IPEX, python)


def test_a_stack_that_does_not_import_says_why(interpreter):
    with pytest.raises(MeasurementError, match="does not import .*libmkl.so is missing"):
        check_environment(IPEX, interpreter("echo 'ImportError: libmkl.so is missing' >&2; exit 1"))
    with pytest.raises(MeasurementError, match="no output"):
        check_environment(IPEX, interpreter("exit 1"))


def test_a_stack_that_was_never_made_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFGUARD_ENVS", str(tmp_path))
    with pytest.raises(ArmError, match="perfguard env create ipex"):
        ready_environment("ipex")


def test_an_installation_that_was_cut_off_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFGUARD_ENVS", str(tmp_path))
    python = tmp_path / "ipex" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    with pytest.raises(ArmError, match="is not installed"):
        ready_environment("ipex")
    (tmp_path / "ipex" / "perfguard-ready.json").write_text("{}")
    assert ready_environment("ipex") == python


def test_too_little_disk_space_is_said_before_anything_is_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFGUARD_ENVS", str(tmp_path / "envs"))
    monkeypatch.setitem(venvs.STACKS, "ipex", replace(IPEX, needs_bytes=2**60))
    monkeypatch.setattr(venvs, "_require_cpu", lambda stack: None)
    said: list[str] = []
    with pytest.raises(HostUnfitError, match=r"needs .* GiB at .*free some, or set PERFGUARD_ENVS"):
        create("ipex", progress=said.append)
    assert said == []
    assert list((tmp_path / "envs").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFGUARD_ENVS", str(tmp_path / "file" / "envs"))
    monkeypatch.setattr(venvs, "_require_cpu", lambda stack: None)
    with pytest.raises(HostUnfitError, match="cannot be used"):
        create("ipex", progress=lambda line: None)


def test_an_unknown_stack_lists_the_known_ones():
    with pytest.raises(UsageError, match="choose from ipex"):
        create("mkldnn", progress=lambda line: None)


def test_an_environment_that_is_ready_is_not_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFGUARD_ENVS", str(tmp_path))
    (tmp_path / "ipex").mkdir()
    (tmp_path / "ipex" / "perfguard-ready.json").write_text("{}")
    said: list[str] = []
    assert create("ipex", progress=said.append) == tmp_path / "ipex" / "bin" / "python"
    assert "exists already" in said[0]


def test_environments_live_in_the_user_s_data_directory_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFGUARD_ENVS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert environments_home() == tmp_path / "perfguard" / "envs"
