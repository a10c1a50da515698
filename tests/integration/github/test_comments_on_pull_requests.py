"""From a run's artifacts to comments: which pull request, which artifact, what where something is wrong."""

from __future__ import annotations

import io
import zipfile

import pytest

from perfguard.codec import to_json
from perfguard.errors import StoreError
from perfguard.integrations.github.api import Artifact, GitHub
from perfguard.integrations.github.comments import MOST_GATES, comment_on, latest_artifacts
from perfguard.integrations.github.connection import GitHubError, NotPermittedError
from perfguard.integrations.github.job import WorkflowRunEvent
from perfguard.records.verdict import GateOutcome
from tests.changed_values import replace
from tests.commented_results import HEAD, PASSED, REGRESSED
from tests.fake_github import REPOSITORY, FakeGitHub, refusal
from tests.hostile_texts import assert_harmless, poisoned

RUN = WorkflowRunEvent(id=4711, attempt=2, head_sha=HEAD, head_repository="eve/net")
RUN_URL = "https://github.example/octo/net/actions/runs/4711"


@pytest.fixture
def hub(httpserver):
    made = FakeGitHub(httpserver)
    made.open_pull(7, HEAD, fork="eve/net")
    return made


@pytest.fixture
def github(hub):
    client = GitHub(repository=REPOSITORY, token="ghs_secret", url=hub.url, wait_s=0.01)
    yield client
    client.close()


def zipped(result=REGRESSED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result.json", to_json(result))
    return content.getvalue()


def told(github, run: WorkflowRunEvent = RUN, label: str | None = "perf-accepted"):
    return comment_on(github, run, run_url=RUN_URL, accept_label=label)


def test_each_gate_of_a_run_has_a_comment_of_its_own(hub, github):
    hub.leave(4711, "perfguard-cpu-1", zipped())
    hub.leave(4711, "perfguard-big.host_2-1", zipped(PASSED))
    hub.leave(4711, "coverage", b"other")
    assert [one.said for one in told(github)] == ["commented on #7", "commented on #7"]
    firsts = {body.partition("\n")[0] for body in hub.bodies()}
    assert firsts == {"<!-- perfguard:cpu -->", "<!-- perfguard:big.host_2 -->"}


def test_names_that_could_collide_are_no_gates():
    names = ["a--b", "a-b", "-a", "a-", "a b", "a>", "", "..", "a..b", "x" * 90]
    found = [
        Artifact(id=index, name=f"perfguard-{name}-1", size_bytes=1, expired=False) for index, name in enumerate(names)
    ]
    assert list(latest_artifacts(found, 1)) == ["a-b"]


def test_a_name_has_at_most_80_characters():
    found = [
        Artifact(id=length, name=f"perfguard-{'x' * length}-1", size_bytes=1, expired=False) for length in (80, 81)
    ]
    assert list(latest_artifacts(found, 1)) == ["x" * 80]


def test_an_attempt_that_was_never_made_keeps_no_other_artifact_out_and_the_first_of_two_counts():
    names = ["perfguard-a-2", "perfguard-b-1", "perfguard-b-1"]
    found = [Artifact(id=index, name=name, size_bytes=1, expired=False) for index, name in enumerate(names)]
    assert latest_artifacts(found, 1) == {"b": (1, found[1])}


def test_the_last_attempt_counts_and_one_that_was_never_made_does_not(hub, github):
    hub.leave(4711, "perfguard-gate-1", zipped())
    hub.leave(4711, "perfguard-gate-2", zipped(PASSED))
    hub.leave(4711, "perfguard-gate-9999", zipped())
    told(github)
    (body,) = hub.bodies()
    assert "<!-- run 4711.2 -->" in body
    assert "✅ perfguard: pass" in body


def test_an_expired_artifact_is_none(hub, github):
    hub.leave(4711, "perfguard-gate-1", zipped())
    hub.artifacts[4711][0]["expired"] = True
    with pytest.raises(StoreError, match="left no artifact named perfguard-NAME-ATTEMPT"):
        told(github)


def test_a_run_cannot_fill_the_pull_request_with_comments(hub, github):
    for index in range(MOST_GATES):
        hub.leave(4711, f"perfguard-spam{index:02}-1", zipped())
    assert [one.said for one in told(github)] == ["commented on #7"] * MOST_GATES
    for index in range(MOST_GATES, MOST_GATES + 5):
        hub.leave(4711, f"perfguard-spam{index:02}-1", zipped())
    said = [one.said for one in told(github)]
    assert len(hub.bodies()) == MOST_GATES
    assert "left 5 artifacts out" in said[-1]


def test_a_pull_request_that_moved_on_gets_no_comment(hub, github):
    hub.pulls[0]["head"]["sha"] = "e" * 40
    (one,) = told(github)
    assert "nothing to comment on" in one.said
    assert hub.count("POST") == 0


def test_the_artifacts_words_choose_nothing(hub, github):
    """Whatever the result says of pull requests, repositories and markers, GitHub's word counts."""
    hub.open_pull(1, "0" * 40, fork="victim/net")
    marker = "<!-- perfguard:other -->\n<!-- run 99999.9 -->\n"
    forged = replace(poisoned(REGRESSED, f"{marker} octo/other#1 refs/pull/1/merge"), verdict="regressed")
    hub.leave(4711, "perfguard-gate-1", zipped(forged))
    told(github)
    assert [line for line in hub.asked if line.startswith("POST")] == [f"POST /repos/{REPOSITORY}/issues/7/comments"]
    (body,) = hub.bodies()
    assert body.startswith("<!-- perfguard:gate -->\n<!-- run 4711.1 -->\n")
    assert_harmless(body.replace("<!-- run 4711.1 -->\n", ""), links=(RUN_URL,))


def test_a_result_whose_headline_is_better_than_its_cases_is_no_comment(hub, github):
    gate = replace(REGRESSED.gate, outcome=GateOutcome.PASS)
    hub.leave(4711, "perfguard-gate-1", zipped(replace(REGRESSED, gate=gate, exit_code=0)))
    (one,) = told(github)
    assert isinstance(one.error, StoreError)
    assert hub.bodies() == []


def test_only_a_label_that_github_knows_of_accepts(hub, github):
    hub.leave(4711, "perfguard-gate-1", zipped())
    told(github)
    assert "Accepted by" not in hub.bodies()[0]
    hub.pulls[0]["labels"] = [{"name": "perf-accepted"}]
    told(github)
    assert "Accepted by the label `perf-accepted`" in hub.bodies()[0]


def test_a_pull_request_of_the_repository_itself_is_not_called_a_forks(hub, github):
    hub.pulls[0]["head"]["repo"]["full_name"] = REPOSITORY
    hub.leave(4711, "perfguard-gate-1", zipped())
    told(github, replace(RUN, head_repository=REPOSITORY))
    assert "fork" not in hub.bodies()[0]


def test_one_bad_artifact_keeps_no_other_from_being_told(hub, github):
    hub.leave(4711, "perfguard-a-1", b"no zip")
    hub.leave(4711, "perfguard-b-1", zipped())
    bad, good = told(github)
    assert isinstance(bad.error, StoreError)
    assert "artifact perfguard-a-1 is not a zip" in bad.said
    assert good.said == "commented on #7"


@pytest.mark.parametrize("status", [403, 404])
def test_a_token_that_may_not_comment_leaves_the_text_and_a_hint(hub, github, status):
    hub.leave(4711, "perfguard-gate-1", zipped())
    hub.fail("POST", "comments", refusal(status, "Resource not accessible by integration"))
    (one,) = told(github)
    assert one.error is None
    assert "permissions: pull-requests: write" in one.said
    assert one.unwritten is not None
    assert "🔺 perfguard: regressed" in one.unwritten


def test_a_comment_that_github_refuses_is_kept_for_the_summary_and_is_an_error(hub, github):
    hub.leave(4711, "perfguard-gate-1", zipped())
    hub.fail("POST", "comments", refusal(422, "Validation Failed"))
    (one,) = told(github)
    assert isinstance(one.error, GitHubError)
    assert one.unwritten is not None


def test_a_token_that_may_not_read_artifacts_is_told_so(hub, github):
    hub.leave(4711, "perfguard-gate-1", zipped())
    hub.fail("GET", "artifacts/.*/zip", refusal(403, "Resource not accessible by integration"))
    (one,) = told(github)
    assert isinstance(one.error, NotPermittedError)
    assert "permissions: actions: read" in one.said
