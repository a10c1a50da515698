"""A new baseline as a pull request, by the API alone."""

from __future__ import annotations

import pytest

from perfguard.config import load_config
from perfguard.errors import ArmError, UsageError
from perfguard.integrations.github import pull_requests
from perfguard.integrations.github.api import GitHub
from perfguard.integrations.github.pull_requests import propose_baseline
from tests.fake_github import REPOSITORY, FakeGitHub, blob_content

BRANCH = "perfguard/baseline-tiny"
PLACE = "baselines/machine-1/tiny"


@pytest.fixture
def hub(httpserver):
    return FakeGitHub(httpserver)


@pytest.fixture
def propose(hub, project):
    github = GitHub(repository=REPOSITORY, token="ghs_secret", url=hub.url, wait_s=0.0)

    def run():
        return propose_baseline(load_config(project.path, {}, {}), github, into="main", branch=BRANCH)

    yield run
    github.close()


def test_new_changed_and_removed_files_become_one_commit(hub, project, propose):
    project.write(f"{PLACE}/timings.json", "old")
    project.write(f"{PLACE}/gone.json", "old")
    parent = project.commit("baseline")
    project.write(f"{PLACE}/timings.json", "new")
    project.write(f"{PLACE}/noise.json", "added")
    project.write("elsewhere.txt", "not proposed")
    (project.path / PLACE / "gone.json").unlink()
    assert propose() == (70, 3)
    commit = hub.objects[hub.refs[BRANCH]]
    assert commit["parents"] == [parent]
    assert "Measured on machine-1" in commit["message"]
    entries = {entry["path"]: entry["sha"] for entry in hub.objects[commit["tree"]]["tree"]}
    assert entries[f"{PLACE}/gone.json"] is None
    assert blob_content(hub, entries[f"{PLACE}/timings.json"]) == b"new"
    assert blob_content(hub, entries[f"{PLACE}/noise.json"]) == b"added"
    assert "elsewhere.txt" not in entries


def test_a_second_proposal_moves_the_branch_and_rewrites_the_open_one(hub, project, propose):
    project.write(f"{PLACE}/timings.json", "one")
    first = propose()
    tip = hub.refs[BRANCH]
    project.write(f"{PLACE}/timings.json", "two")
    assert propose()[0] == first[0]
    assert len(hub.pulls) == 1
    assert hub.refs[BRANCH] != tip


def test_the_first_50_files_are_listed(hub, project, propose):
    for number in range(51):
        project.write(f"{PLACE}/{number:02}.json", "new")
    assert propose()[1] == 51
    listed = [line for line in hub.pulls[0]["body"].splitlines() if line.startswith("- ")]
    assert listed == [f"- `{PLACE}/{number:02}.json`" for number in range(50)]


def test_an_unchanged_baseline_proposes_nothing(hub, project, propose):
    assert propose() is None
    assert hub.asked == []


def test_a_baseline_as_large_as_a_repository_is_refused(hub, project, propose, monkeypatch):
    monkeypatch.setattr(pull_requests, "_MOST_BYTES", 10)
    project.write(f"{PLACE}/timings.json", "x" * 11)
    with pytest.raises(UsageError, match="more than 10"):
        propose()
    assert hub.asked == []
    project.write(f"{PLACE}/timings.json", "x" * 10)
    assert propose()[1] == 1


def test_a_baseline_has_some_hundred_kb_and_never_more_than_32_mib(hub, project, propose):
    project.write(f"{PLACE}/timings.json", "x" * 300_000)
    assert propose()[1] == 1
    with (project.path / PLACE / "timings.json").open("wb") as file:
        file.truncate((32 << 20) + 1)
    with pytest.raises(UsageError, match="33554433 bytes"):
        propose()


def test_a_project_outside_git_is_one_sentence(hub, empty_project):
    github = GitHub(repository=REPOSITORY, token=None, url=hub.url)
    with pytest.raises(ArmError, match="not inside a git repository"):
        propose_baseline(load_config(empty_project.path, {}, {}), github, into="main", branch=BRANCH)
    github.close()
