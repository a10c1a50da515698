"""What the runner's event file says."""

from __future__ import annotations

import json

import pytest

from perfguard.errors import UsageError
from perfguard.integrations.github.job import pull_request_of, read_event, this_job, workflow_run_of

PULL = {
    "number": 7,
    "head": {"sha": "abc", "repo": {"full_name": "eve/net"}},
    "base": {"sha": "def", "repo": {"full_name": "octo/net"}},
    "labels": [{"name": "perf-accepted"}],
}
RUN = {"id": 4711, "run_attempt": 2, "head_sha": "abc", "head_repository": {"full_name": "eve/net"}}


def test_a_pull_request_from_elsewhere_is_a_forks():
    event = pull_request_of({"pull_request": PULL})
    assert (event.head_sha, event.from_fork, event.labels) == ("abc", True, ("perf-accepted",))
    own = {**PULL, "head": {"sha": "abc", "repo": {"full_name": "octo/net"}}}
    assert not pull_request_of({"pull_request": own}).from_fork


def test_a_fork_that_was_deleted_is_still_one():
    assert pull_request_of({"pull_request": {**PULL, "head": {"sha": "abc", "repo": None}}}).from_fork


def test_a_pull_request_without_labels_has_none():
    assert pull_request_of({"pull_request": {**PULL, "labels": None}}).labels == ()


def test_events_about_something_else_have_neither():
    for event in ({}, {"pull_request": None}, {"workflow_run": "x"}, {"merge_group": {}}):
        assert pull_request_of(event) is None
        assert workflow_run_of(event) is None


@pytest.mark.parametrize("missing", ["head", "base"])
def test_a_pull_request_that_lacks_something_is_one_sentence(missing):
    broken = {key: value for key, value in PULL.items() if key != missing}
    with pytest.raises(UsageError, match=missing):
        pull_request_of({"pull_request": broken})


@pytest.mark.parametrize("labels", [["perf-accepted"], [None], [{}], 5])
def test_labels_of_another_shape_accept_nothing(labels):
    with pytest.raises(UsageError, match="GITHUB_EVENT_PATH"):
        pull_request_of({"pull_request": {**PULL, "labels": labels}})


def test_a_workflow_run_names_its_commit_attempt_and_repository():
    run = workflow_run_of({"workflow_run": RUN})
    assert (run.id, run.attempt, run.head_sha, run.head_repository) == (4711, 2, "abc", "eve/net")
    assert workflow_run_of({"workflow_run": {**RUN, "head_repository": None}}).head_repository is None


@pytest.mark.parametrize("missing", ["id", "run_attempt", "head_sha"])
def test_a_workflow_run_that_lacks_something_is_one_sentence(missing):
    with pytest.raises(UsageError, match=missing):
        workflow_run_of({"workflow_run": {key: value for key, value in RUN.items() if key != missing}})


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{"])
def test_a_file_that_is_no_event_is_one_sentence(tmp_path, content):
    path = tmp_path / "event.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an event of GitHub"):
        read_event(path)


def test_a_file_that_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="is not an event of GitHub"):
        read_event(tmp_path / "nowhere.json")


def test_outside_github_nothing_is_known():
    job = this_job({})
    assert (job.repository, job.token, job.pull_request, job.workflow_run) == (None, None, None, None)
    assert job.run_url(1) is None
    for known in ({"GITHUB_SERVER_URL": "https://github.example"}, {"GITHUB_REPOSITORY": "octo/net"}):
        assert this_job(known).run_url(1) is None


def test_a_job_knows_where_it_is(tmp_path):
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"workflow_run": RUN}))
    job = this_job(
        {
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "octo/net",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_RUN_ID": "12",
            "GITHUB_TOKEN": "",
        }
    )
    assert job.run_url(12) == "https://github.example/octo/net/actions/runs/12"
    assert job.token is None
    assert job.workflow_run.id == 4711
