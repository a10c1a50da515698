"""Which statements a change touches, on both sides of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perfguard.records.changed_lines import ChangedLines, ChangedStatement
from perfguard.records.plan import ArmSpec, ResolvedArm
from perfguard.records.run import Arm
from perfguard.runner.arms.changed_lines import changed_lines
from tests.changed_values import replace

BEFORE = '''\
"""A model."""
import torch


def make(net):
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(
        net.parameters(),
        lr=1e-3,
        fused=True,
    )
    return net, optimizer


def merge(parts, rows):
    for row in rows:
        parts[:, row] = rows[row]
    return parts
'''


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "src").mkdir()
    commit(tmp_path, BEFORE)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, text: str) -> None:
    (folder / "src" / "model.py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")


def arms(repository: Path, tmp_path_factory) -> tuple[ResolvedArm, ResolvedArm]:
    """The last two commits, each in a folder of its own."""
    found = []
    for role, revision in ((Arm.BASELINE, "HEAD~1"), (Arm.CANDIDATE, "HEAD")):
        tree = tmp_path_factory.mktemp(role.value) / "tree"
        git(repository, "worktree", "add", "--detach", str(tree), revision)
        found.append(arm(role, tree, git(repository, "rev-parse", f"{revision}^{{tree}}"), revision))
    return found[0], found[1]


def arm(role: Arm, tree: Path, source_id: str, revision: str | None) -> ResolvedArm:
    return ResolvedArm(
        role=role,
        spec=ArmSpec(text="x", revision=revision),
        interpreter="python",
        tree=str(tree),
        bundle="bundle",
        code_roots=(str(tree),),
        source_id=source_id,
        commit=None,
        environment=(),
    )


def spans(lines: ChangedLines) -> list[tuple[str, int, int]]:
    return [(each.path, each.first, each.last) for each in lines.statements]


CHANGES = {
    "an argument of a call over several lines is the whole call": (
        ("        fused=True,\n", "        fused=False,\n"),
        [("src/model.py", 7, 11)],
        [("src/model.py", 7, 11)],
    ),
    "an assignment to a slice": (
        ("parts[:, row] = rows[row]", "parts[:, row] = rows[row].clone()"),
        [("src/model.py", 17, 17)],
        [("src/model.py", 17, 17)],
    ),
    "the head of a loop, not its body": (
        ("for row in rows:", "for row in sorted(rows):"),
        [("src/model.py", 16, 16)],
        [("src/model.py", 16, 16)],
    ),
    "a deleted line is the place where it was": (
        ("    net = net.to(memory_format=torch.channels_last)\n", ""),
        [("src/model.py", 6, 6)],
        [("src/model.py", 6, 6)],
    ),
    "a form feed is a line like others": (("def merge(", "\f\ndef merge("), [], []),
    "comments and docstrings are no statements": (('"""A model."""', '"""Another model."""  # new'), [], []),
}


@pytest.mark.parametrize(("change", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_change_touches(repository, tmp_path_factory, change, before, after):
    commit(repository, BEFORE.replace(*change))
    found = changed_lines(*arms(repository, tmp_path_factory), repository)
    assert tuple(map(spans, found)) == (before, after)


def test_a_file_with_a_space_in_its_name_is_found(repository, tmp_path_factory):
    (repository / "src" / "a b.py").write_text("x = 1\n")
    commit(repository, BEFORE)
    (repository / "src" / "a b.py").write_text("x = 2\n")
    commit(repository, BEFORE)
    assert [spans(side) for side in changed_lines(*arms(repository, tmp_path_factory), repository)] == [
        [("src/a b.py", 1, 1)]
    ] * 2


def test_a_directory_counts_as_it_lies_there(repository, tmp_path_factory):
    commit(repository, BEFORE)
    baseline, _ = arms(repository, tmp_path_factory)
    (repository / "src" / "model.py").write_text(BEFORE.replace("1e-3", "1e-4"))
    candidate = arm(Arm.CANDIDATE, repository, baseline.source_id + "+dirty", None)
    assert [spans(side) for side in changed_lines(baseline, candidate, repository)] == [[("src/model.py", 7, 11)]] * 2


def test_what_git_does_not_know_has_no_changed_lines(tmp_path):
    unknown = arm(Arm.BASELINE, tmp_path, "untracked", None)
    assert changed_lines(unknown, replace(unknown, role=Arm.CANDIDATE), tmp_path) == (ChangedLines(), ChangedLines())


def test_a_source_from_the_folder_that_it_is_imported_from_is_found_in_the_tree():
    lines = ChangedLines(statements=(ChangedStatement(path="src/net/model.py", first=7, last=9, text="x"),))
    assert lines.place_of("net/model.py:8") == "src/net/model.py:8"
    assert lines.place_of("src/net/model.py:9") == "src/net/model.py:9"
    for other in ("net/model.py:10", "et/model.py:8", "other.py:8", "", "net/model.py"):
        assert lines.place_of(other) is None


def test_outside_the_step_the_one_statement_with_the_word_acts_or_the_only_one():
    plain = ChangedStatement(path="a.py", first=3, last=3, text="x = 1")
    makes = ChangedStatement(path="b.py", first=5, last=8, text="Adam(net, fused=False)")
    assert ChangedLines(statements=(plain, makes)).line_with(("fused",)) == "b.py:5"
    assert ChangedLines(statements=(plain, makes), is_complete=True).line_with() is None
    assert ChangedLines(statements=(plain,), is_complete=True).line_with(("fused",)) == "a.py:3"
    assert ChangedLines(statements=(plain,)).line_with(("fused",)) is None


def test_of_several_statements_with_the_word_the_first_acts_if_they_are_in_one_file():
    first, second = (
        ChangedStatement(path="train.py", first=line, last=line, text="to(memory_format=torch.channels_last)")
        for line in (10, 16)
    )
    elsewhere = ChangedStatement(path="data.py", first=4, last=4, text="x.to(memory_format=torch.channels_last)")
    assert ChangedLines(statements=(first, second)).line_with(("memory_format",)) == "train.py:10"
    assert ChangedLines(statements=(elsewhere, first, second)).line_with(("memory_format",)) is None


@pytest.mark.parametrize(("name", "is_complete"), [("notes.md", True), ("requirements.txt", False), ("op.cpp", False)])
def test_beside_other_files_that_may_act_on_a_step_the_lines_are_not_all_of_the_change(
    repository, tmp_path_factory, name, is_complete
):
    (repository / name).write_text("x")
    commit(repository, BEFORE.replace("1e-3", "1e-4"))
    assert [side.is_complete for side in changed_lines(*arms(repository, tmp_path_factory), repository)] == [
        is_complete
    ] * 2
