from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from perfguard.errors import ArmError
from perfguard.records.plan import ResolvedArm
from perfguard.records.run import Arm
from perfguard.runner.arms.resolve import find_interpreter, parse_arm, require_different_interpreters


@pytest.fixture
def venv(tmp_path):
    """A virtual environment as far as finding it goes: a link to the real interpreter."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return python


@pytest.mark.parametrize("text", [".venv/bin/python", ".venv/", "./.venv", ".venv", "sub/../.venv"])
def test_an_environment_is_found_by_its_folder_or_its_interpreter_and_its_link_is_kept(venv, tmp_path, text):
    assert find_interpreter(text, tmp_path) == str(venv)


def test_an_absolute_path_and_the_home_folder_are_understood(venv, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_interpreter(str(venv), Path("/elsewhere")) == str(venv)
    assert find_interpreter("~/.venv", Path("/elsewhere")) == str(venv)


def test_a_plain_name_is_looked_up_on_the_path(tmp_path):
    assert find_interpreter("sh", tmp_path) == shutil.which("sh")


@pytest.mark.parametrize("text", ["absent-python", "./absent", "/absent/bin/python", "data.txt", "./data.txt"])
def test_what_is_no_executable_is_not_found(tmp_path, text):
    (tmp_path / "data.txt").write_text("no program")
    assert find_interpreter(text, tmp_path) is None


def arm(role, text, interpreter):
    return ResolvedArm(
        role=role,
        spec=parse_arm(text),
        interpreter=interpreter,
        tree="/t",
        bundle="/b",
        code_roots=(),
        source_id="s",
        commit=None,
        environment=(),
    )


def test_two_names_for_one_environment_are_refused(venv):
    other = venv.with_name("python3")
    other.symlink_to("python")
    pair = (arm(Arm.BASELINE, "python:one", str(venv)), arm(Arm.CANDIDATE, "python:two", str(other)))
    with pytest.raises(ArmError, match="name two different environments"):
        require_different_interpreters(*pair)


def test_two_environments_over_the_same_python_are_two(venv, tmp_path):
    second = tmp_path / "second" / "bin" / "python"
    second.parent.mkdir(parents=True)
    second.symlink_to(os.path.realpath(venv))
    pair = (arm(Arm.BASELINE, "python:one", str(venv)), arm(Arm.CANDIDATE, "python:two", str(second)))
    assert require_different_interpreters(*pair) is None
