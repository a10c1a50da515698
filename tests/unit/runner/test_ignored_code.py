from __future__ import annotations

import pytest

from perfguard.runner.arms import git
from tests.git_repositories import init_repository


@pytest.fixture
def repository(tmp_path, monkeypatch):
    place = init_repository(tmp_path / "repository", monkeypatch)
    (place / ".gitignore").write_text("*.so\ngenerated\nenvironment\n*.log\n*.pyc\n.hidden.py\n")
    return place


def write(place, name):
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("")


@pytest.mark.parametrize("name", ["fast.so", "package/fast.cpython-311.so", "generated/deep/module.py"])
def test_code_that_git_ignores_is_found(repository, name):
    write(repository, name)
    assert git.has_ignored_code(repository)


@pytest.mark.parametrize("name", ["module.py", "run.log", "generated/table.csv", ".hidden.py", "a/__pycache__/b.pyc"])
def test_what_is_no_code_or_not_ignored_does_not_count(repository, name):
    write(repository, name)
    assert not git.has_ignored_code(repository)


def test_environments_and_hidden_folders_do_not_count(repository):
    """The latter may hold an ignore file of their own, as perfguard's does, whose entries git lists one by one."""
    write(repository, "environment/pyvenv.cfg")
    write(repository, "environment/lib/module.py")
    write(repository, ".perfguard/runs/1/arms/a/lib/start.py")
    (repository / ".perfguard" / ".gitignore").write_text("*")
    assert not git.has_ignored_code(repository)


def test_only_what_lies_below_counts(repository):
    write(repository, "fast.so")
    write(repository, "part/module.py")
    assert not git.has_ignored_code(repository / "part")
    assert git.path_in_repository(repository / "part") == "part/"
    assert git.path_in_repository(repository) == ""
