"""The API client against a local GitHub: pages, limits, faults, redirects."""

from __future__ import annotations

import socket
import time

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from perfguard.errors import StoreError, UsageError
from perfguard.integrations.github.api import Artifact, GitHub
from perfguard.integrations.github.connection import GitHubError, NotPermittedError
from perfguard.store.artifacts import MOST_ZIP_BYTES
from tests.changed_values import replace
from tests.fake_github import REPOSITORY, FakeGitHub, as_json, refusal

ARTIFACT = Artifact(id=1, name="perfguard-gate-1", size_bytes=10, expired=False)


def test_comments_of_all_pages_are_found(hub, connect):
    hub.page_ceiling = 2
    for index in range(5):
        hub.add_comment(f"comment {index}")
    assert [comment.body for comment in connect(hub).comments(7)] == [f"comment {index}" for index in range(5)]
    assert hub.count("GET") == 3


def test_a_pull_request_on_a_later_page_is_found_and_no_further_page_is_asked_for(hub, connect):
    hub.page_ceiling = 2
    for number in range(1, 8):
        hub.open_pull(number, f"sha{number}")
    assert connect(hub).open_pull_request("sha3").number == 3
    assert hub.count("GET") == 2


def test_a_pull_request_that_moved_on_is_not_found(hub, connect):
    hub.open_pull(7, "newer")
    assert connect(hub).open_pull_request("older") is None


def test_somebody_elses_pull_request_with_the_same_commit_is_not_taken(hub, connect):
    hub.open_pull(8, "same", fork="eve/net")
    hub.open_pull(7, "same", fork="ann/net")
    found = connect(hub).open_pull_request("same", "ann/net")
    assert (found.number, found.from_fork) == (7, True)
    assert connect(hub).open_pull_request("same", REPOSITORY) is None


def test_a_pull_request_of_a_deleted_fork_counts_as_a_forks(hub, connect):
    hub.open_pull(7, "abc")
    hub.pulls[0]["head"]["repo"] = None
    assert connect(hub).open_pull_request("abc").from_fork


def test_the_token_and_a_version_that_enterprise_servers_know_are_sent(hub, connect):
    connect(hub).comments(7)
    assert hub.headers[0]["Authorization"] == "Bearer ghs_secret"
    assert hub.headers[0]["X-Github-Api-Version"] == "2022-11-28"
    assert hub.headers[0]["User-Agent"].startswith("perfguard/")


def test_an_enterprise_servers_path_is_kept_on_all_pages(httpserver, connect):
    hub = FakeGitHub(httpserver, prefix="/api/v3", page_ceiling=1)
    hub.add_comment("one")
    hub.add_comment("two")
    assert len(connect(hub).comments(7)) == 2
    assert hub.asked == [f"GET /repos/{REPOSITORY}/issues/7/comments"] * 2


@pytest.fixture
def at_second_1000(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)


@pytest.mark.usefixtures("at_second_1000")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry_After": "17"}, 17.0),
        ({"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "1030"}, 30.0),
        ({"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "970"}, 0.0),
        ({"X_RateLimit_Remaining": "0"}, 0.6),
        ({"X_RateLimit_Remaining": "5", "X_RateLimit_Reset": "1030"}, 0.6),
        ({}, 0.6),
    ],
)
def test_a_429_is_waited_out_as_long_as_github_says(hub, connect, pauses, headers, expected):
    hub.fail("GET", "comments", refusal(429, "too many requests", **headers), times=2)
    hub.add_comment("there")
    assert [comment.body for comment in connect(hub).comments(7)] == ["there"]
    assert pauses == [expected, expected]


def test_a_429_on_the_second_page_loses_no_comment(hub, connect, pauses):
    hub.page_ceiling = 1
    for text in ("one", "two", "three"):
        hub.add_comment(text)
    client = connect(hub)
    seen = []

    def limited(request):
        seen.append(request.args.get("page"))
        return refusal(429, "slow down", Retry_After="0")

    hub.fail("GET", "comments", limited)
    assert [comment.body for comment in client.comments(7)] == ["one", "two", "three"]
    assert seen == [None]


@pytest.mark.parametrize("said", ["rate limit", "slow down"])
def test_a_limit_that_would_take_too_long_is_an_error(hub, connect, pauses, said):
    hub.fail("GET", "comments", refusal(429, said, Retry_After="301"), times=99)
    with pytest.raises(GitHubError, match="rate limit holds .* back"):
        connect(hub).comments(7)
    assert pauses == []


@pytest.mark.parametrize(("headers", "least_s"), [({"Retry_After": "17"}, 17.0), ({}, 0.001)])
def test_a_secondary_limit_is_waited_out(hub, connect, pauses, headers, least_s):
    said = "You have exceeded a secondary rate limit."
    hub.fail("POST", "comments", refusal(403, said, **headers), times=1)
    connect(hub).add_comment(7, "hello")
    assert hub.bodies() == ["hello"]
    assert max(pauses) >= least_s


def test_a_secondary_limit_that_stays_is_no_missing_permission(hub, connect, pauses):
    hub.fail("POST", "comments", refusal(403, "You have exceeded a secondary rate limit."), times=99)
    with pytest.raises(GitHubError, match="run this again later") as caught:
        connect(hub).add_comment(7, "hello")
    assert not isinstance(caught.value, NotPermittedError)


def test_server_errors_are_repeated_with_growing_pauses(hub, connect, pauses):
    hub.fail("GET", "comments", refusal(502, "Bad Gateway"), times=3)
    assert connect(hub).comments(7) == ()
    assert pauses == sorted(pauses)
    assert len(pauses) == 3


def test_server_errors_that_stay_are_one_sentence(hub, connect, pauses):
    hub.fail("GET", "comments", refusal(500, "boom"), times=99)
    with pytest.raises(GitHubError, match="GitHub answered 500 for .*comments: boom"):
        connect(hub).comments(7)
    assert hub.count("GET") == 7
    assert pauses[-1] == pytest.approx(2 * pauses[-2], rel=0.1)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_the_token_may_not_do_has_an_error_of_its_own(hub, connect, status):
    hub.fail("POST", "comments", refusal(status, "Resource not accessible by integration"))
    with pytest.raises(NotPermittedError, match="not accessible"):
        connect(hub).add_comment(7, "hello")


def test_a_body_that_is_too_long_is_one_sentence(hub, connect):
    with pytest.raises(GitHubError, match="422 .*Body is too long"):
        connect(hub).add_comment(7, "x" * 70_000)


def test_a_long_message_is_quoted_in_part(hub, connect):
    hub.fail("POST", "comments", refusal(422, "ä" * 400))
    with pytest.raises(GitHubError, match="GitHub answered 422") as caught:
        connect(hub).add_comment(7, "hello")
    assert str(caught.value).count("ä") == 300
    hub.fail("GET", "comments", as_json([{"id": "ä" * 400}]))
    with pytest.raises(GitHubError, match="not GitHub's") as caught:
        connect(hub).comments(7)
    assert len(str(caught.value).partition("GitHub's (")[2].rpartition("); is")[0]) == 200


def test_a_minute_is_waited_where_github_names_no_time(hub, pauses):
    hub.fail("GET", "comments", refusal(429, "slow down"))
    github = GitHub(repository=REPOSITORY, token=None, url=hub.url)
    assert github.comments(7) == ()
    github.close()
    assert pauses == [60.0]


@pytest.mark.usefixtures("pauses")
def test_repeated_requests_leave_nothing_in_the_jobs_log(hub, connect, caplog):
    hub.fail("GET", "comments", refusal(502, "Bad Gateway"), times=3)
    assert connect(hub).comments(7) == ()
    assert [record for record in caplog.records if record.name == "ghreq"] == []


def test_nobody_listening_is_one_sentence(connect, pauses):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        github = GitHub(repository=REPOSITORY, token=None, url=url, wait_s=0.01)
        with pytest.raises(GitHubError, match="could not be reached"):
            github.comments(7)
        github.close()


@pytest.mark.parametrize(
    "answer",
    [
        Response("<html>proxy</html>", mimetype="text/html"),
        as_json("text"),
        as_json(None),
        as_json([1, 2]),
        as_json([{"id": "x"}]),
        as_json({"one": [], "two": []}),
        as_json({"message": "no list"}),
        Response("", 200),
    ],
)
def test_an_answer_that_is_not_githubs_is_one_sentence(hub, connect, answer):
    hub.fail("GET", "comments", answer)
    with pytest.raises(GitHubError, match="not GitHub's"):
        connect(hub).comments(7)


def test_a_next_page_elsewhere_does_not_get_the_token(hub, connect):
    answer = as_json([])
    answer.headers["Link"] = '<http://elsewhere.example/comments?page=2>; rel="next"'
    hub.fail("GET", "comments", answer)
    with pytest.raises(GitHubError, match=r"the next page is at http://elsewhere\.example"):
        connect(hub).comments(7)


def test_an_address_that_is_none_is_one_sentence(pauses):
    github = GitHub(repository=REPOSITORY, token=None, url="nowhere", wait_s=0.01)
    with pytest.raises(GitHubError, match="could not be reached"):
        github.comments(7)
    github.close()


def test_a_repository_is_an_owner_and_a_name():
    for name in ("octo", "octo/net/x", "octo/net?x", "../x", "octo/"):
        with pytest.raises(UsageError, match="is not OWNER/NAME"):
            GitHub(repository=name, token=None)


def test_an_artifact_is_fetched_from_another_host_without_the_token(hub, connect):
    storage = HTTPServer(host="localhost", port=0)
    seen = []

    def serve(request):
        seen.append(dict(request.headers))
        return Response(b"PK-content")

    storage.expect_request("/blob").respond_with_handler(serve)
    storage.start()
    try:
        hub.zips[1] = lambda _: Response(status=302, headers={"Location": storage.url_for("/blob")})
        with connect(hub).downloaded(ARTIFACT) as file:
            assert file.read() == b"PK-content"
    finally:
        storage.stop()
    assert "Authorization" in hub.headers[-1]
    assert len(seen) == 1
    assert "Authorization" not in seen[0]


def test_an_artifact_larger_than_announced_is_refused(hub, connect):
    hub.zips[1] = lambda _: Response(b"x" * (3 << 20))
    with pytest.raises(StoreError, match="larger than GitHub said"), connect(hub).downloaded(ARTIFACT):
        pass


def test_an_artifact_larger_than_any_gates_is_not_fetched(hub, connect):
    huge = Artifact(id=1, name="perfguard-gate-1", size_bytes=1 << 40, expired=False)
    with pytest.raises(StoreError, match="no gate leaves so much"), connect(hub).downloaded(huge):
        pass
    assert hub.asked == []


def test_an_artifact_may_be_as_large_as_a_gates_can_be(hub, connect):
    hub.zips[1] = lambda _: Response(b"x")
    with connect(hub).downloaded(replace(ARTIFACT, size_bytes=MOST_ZIP_BYTES)) as file:
        assert file.read() == b"x"


def test_an_artifact_may_be_a_mib_larger_than_announced_and_no_more(hub, connect):
    most = ARTIFACT.size_bytes + (1 << 20)
    hub.zips[1] = lambda _: Response(b"x" * most)
    with connect(hub).downloaded(ARTIFACT) as file:
        assert len(file.read()) == most
    hub.zips[1] = lambda _: Response(b"x" * (most + 1))
    with pytest.raises(StoreError, match="larger than GitHub said"), connect(hub).downloaded(ARTIFACT):
        pass


def test_a_branch_is_made_and_moved(hub, connect):
    client = connect(hub)
    first = client.commit(branch="new", parent="p", message="one", files={"a": b"1"})
    assert hub.refs == {"new": first}
    second = client.commit(branch="new", parent="p", message="two", files={"a": b"2"})
    assert hub.refs == {"new": second}
    assert first != second


def test_a_proposal_that_is_open_is_rewritten(hub, connect):
    client = connect(hub)
    client.commit(branch="new", parent="p", message="one", files={"a": b"1"})
    first = client.propose(branch="new", into="main", title="one", body="1")
    assert client.propose(branch="new", into="main", title="two", body="2") == first
    (pull,) = hub.pulls
    assert (pull["title"], pull["body"]) == ("two", "2")


def test_what_goes_wrong_with_a_download_is_not_laid_to_github(hub, connect):
    hub.zips[1] = lambda _: Response(b"x")
    with pytest.raises(KeyError), connect(hub).downloaded(ARTIFACT):
        raise KeyError("mine")


def test_a_comment_that_is_gone_already_is_removed(hub, connect):
    number = hub.add_comment("there")
    (comment,) = connect(hub).comments(7)
    del hub.comments[number]
    connect(hub).remove_comment(comment)
    assert hub.count("DELETE") == 1
