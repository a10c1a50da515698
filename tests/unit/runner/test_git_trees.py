from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from perfguard.errors import ArmError
from perfguard.runner.arms import git
from tests.git_repositories import init_repository


@pytest.fixture
def repository(tmp_path, monkeypatch):
    path = init_repository(tmp_path / "repo ü", monkeypatch)
    (path / "a.py").write_text("A = 1\n")
    (path / ".gitignore").write_text("ignored\n")
    commit(path)
    return path


def commit(path):
    git.run_git(path, "add", "-A")
    git.run_git(path, "commit", "-q", "-m", "change")
    return git.resolve_commit(path, "HEAD")


def test_a_clean_tree_is_known_by_its_content_alone(repository):
    first = git.tree_state(repository)
    git.run_git(repository, "commit", "-q", "--allow-empty", "-m", "nothing")
    second = git.tree_state(repository)
    assert first.dirty is None
    assert first.commit != second.commit
    assert first.source_id == second.source_id == git.tree_of(repository, "HEAD")


def test_every_change_of_content_changes_the_identity(repository):
    seen = [git.tree_state(repository).source_id]
    for change in (
        lambda: (repository / "a.py").write_text("A = 2\n"),
        lambda: (repository / "a.py").write_text("A = 3\n"),
        lambda: (repository / "new.py").write_text("B = 1\n"),
        lambda: (repository / "new.py").write_text("B = 2\n"),
        lambda: (repository / "name with space ü.py").write_text("C = 1\n"),
        lambda: git.run_git(repository, "rm", "-q", "-f", "a.py"),
    ):
        change()
        seen.append(git.tree_state(repository).source_id)
    assert len(set(seen)) == len(seen)


def test_the_same_change_gives_the_same_identity_again(repository):
    (repository / "new.py").write_text("B = 1\n")
    first = git.tree_state(repository).source_id
    (repository / "new.py").unlink()
    (repository / "new.py").write_text("B = 1\n")
    assert git.tree_state(repository).source_id == first


def test_ignored_files_are_no_change(repository):
    (repository / "ignored").write_text("x")
    assert git.tree_state(repository).dirty is None


def test_a_subdirectory_sees_the_whole_tree(repository):
    (repository / "deep").mkdir()
    (repository / "deep" / "b.py").write_text("")
    commit(repository)
    (repository / "new.py").write_text("x = 1\n")
    assert git.tree_state(repository / "deep") == git.tree_state(repository)
    (repository / "new.py").write_text("x = 2\n")
    assert git.tree_state(repository / "deep") == git.tree_state(repository)
    assert git.tree_state(repository / "deep").dirty is not None


def test_a_worktree_is_added_and_removed_without_a_trace(repository, tmp_path):
    old = git.resolve_commit(repository, "HEAD")
    (repository / "a.py").write_text("A = 2\n")
    commit(repository)
    place = tmp_path / "place"
    git.add_worktree(repository, place, old)
    assert (place / "a.py").read_text() == "A = 1\n"
    assert git.tree_state(place).commit == old
    git.remove_worktree(repository, place)
    assert not place.exists()
    assert git.run_git(repository, "worktree", "list").count(b"\n") == 1
    git.remove_worktree(repository, place)


def test_a_worktree_that_somebody_deleted_is_no_obstacle(repository, tmp_path):
    head = git.resolve_commit(repository, "HEAD")
    place = tmp_path / "place"
    git.add_worktree(repository, place, head)
    subprocess.run(["rm", "-rf", str(place)], check=True)
    git.add_worktree(repository, place, head)
    assert (place / "a.py").exists()


@pytest.mark.parametrize("name", ["HEAD", "main", "v1", "HEAD~0", "@"])
def test_whatever_names_a_commit_is_resolved(repository, name):
    git.run_git(repository, "tag", "-a", "v1", "-m", "annotated")
    assert git.resolve_commit(repository, name) == git.run_git(repository, "rev-parse", "HEAD").decode().strip()


@pytest.mark.parametrize("name", ["nowhere", "HEAD~99", "HEAD:a.py", "main..HEAD"])
def test_what_names_no_commit_is_refused_with_a_hint(repository, name):
    with pytest.raises(ArmError, match="git knows no revision .* fetch it first"):
        git.resolve_commit(repository, name)


def test_a_revision_cannot_be_an_option(repository):
    with pytest.raises(ArmError, match="is not a revision"):
        git.resolve_commit(repository, "--help")


def test_outside_git_there_is_no_repository_and_no_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git.top_level(tmp_path) is None
    state = git.tree_state(tmp_path)
    assert (state.commit, state.tree, state.dirty, state.source_id) == (None, None, None, "untracked")


def test_before_the_first_commit_there_is_no_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    git.run_git(tmp_path, "init", "-q")
    assert git.tree_state(tmp_path).tree is None


def test_without_git_on_the_path_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArmError, match="git is not on the path"):
        git.run_git(tmp_path, "status")
    assert git.top_level(tmp_path) is None


class TestCodeId:
    BASELINES = Path("sub/baselines")
    LONG_AGO = "2000-01-01T00:00:00Z"

    def of(self, repository):
        return git.code_id(repository, "HEAD", without=self.BASELINES)

    def write(self, repository, name, text=""):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
        return commit(repository)

    def test_leaves_the_baselines_out_and_nothing_else(self, repository):
        before = self.of(repository)
        self.write(repository, "sub/baselines/machine/quick/info.json", "{}")
        assert self.of(repository) == before
        self.write(repository, "sub/baselines.py")
        assert self.of(repository) != before

    def test_finds_the_newest_commit_with_this_code(self, repository):
        wanted = self.of(repository)
        with_baseline = self.write(repository, "sub/baselines/info.json", "{}")
        self.write(repository, "work.py", "slower = True")
        find = partial(git.find_code, repository, without=self.BASELINES, since=self.LONG_AGO)
        assert find(wanted) == with_baseline
        assert find("0" * 32) is None

    def test_looks_at_nothing_older_than_the_baseline(self, repository):
        wanted = self.of(repository)
        assert git.find_code(repository, wanted, without=self.BASELINES, since="2037-01-01T00:00:00Z") is None


def test_hooks_are_not_run(repository, tmp_path):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    git.add_worktree(repository, tmp_path / "tree", "HEAD")
    assert (tmp_path / "tree" / "a.py").exists()
    assert not (tmp_path / "ran").exists()


def test_a_bare_repository_inside_the_tree_is_no_repository(repository):
    inner = repository / "inner"
    subprocess.run(["git", "init", "-q", "--bare", str(inner)], check=True)
    assert git.top_level(inner) is None


def test_what_differs_between_trees_is_told_and_names_that_are_none_are_not(repository):
    first = git.tree_of(repository, "HEAD")
    (repository / "a.py").write_text("A = 2\n")
    (repository / "ä.md").write_text("words\n")
    second = git.tree_of(repository, commit(repository))
    assert git.changed_between_trees(repository, first, second) == ("a.py", "ä.md")
    git.run_git(repository, "mv", "a.py", "a.md")
    moved = git.tree_of(repository, commit(repository))
    both = git.changed_between_trees(repository, second, moved)
    assert both == ("a.md", "a.py")  # code that is gone is a change, too
    assert git.changed_between_trees(repository, first, "dir:/somewhere") is None
    assert git.changed_between_trees(repository, first, "f" * 40) is None
