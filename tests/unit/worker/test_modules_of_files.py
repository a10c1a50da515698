"""Files with benchmarks become modules that stay apart, whatever they are called."""

from __future__ import annotations

import sys

import pytest

from perfguard.worker.cases import load_module


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files of one name in two folders, and one that is called like a module of Python's."""
    monkeypatch.chdir(tmp_path)
    for name in ("fast/sums.py", "slow/sums.py", "own/json.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"WHERE = {name!r}\n", encoding="utf-8")
    before = dict(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def test_files_of_one_name_are_two_modules_and_both_are_seen(files):
    fast, slow = load_module("fast/sums.py"), load_module("slow/sums.py")
    assert (fast.WHERE, slow.WHERE) == ("fast/sums.py", "slow/sums.py")
    found = {module.__file__ for module in list(sys.modules.values()) if "WHERE" in getattr(module, "__dict__", ())}
    assert found == {str(files / "fast" / "sums.py"), str(files / "slow" / "sums.py")}


def test_a_file_is_imported_once(files):
    load_module("fast/sums.py")
    assert load_module("slow/sums.py") is load_module("slow/sums.py")
    assert load_module("fast/sums.py") is load_module("fast/sums.py")


def test_a_file_that_is_called_like_a_library_leaves_that_alone(files):
    import json

    assert load_module("own/json.py").WHERE == "own/json.py"
    assert sys.modules["json"] is json
