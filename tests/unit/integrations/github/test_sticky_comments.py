"""One comment a marker, whatever happened before."""

from __future__ import annotations

import socket

import pytest
from werkzeug import Response

from perfguard.integrations.github.comments import RunNumber, put_comment
from perfguard.integrations.github.connection import GitHubError
from tests.fake_github import BOT, FakeGitHub, refusal

MARKER = "<!-- perfguard:gate -->"
ANN = {"login": "ann", "type": "User"}


def body(text: str = "all well", marker: str = MARKER) -> str:
    return f"{marker}\n\n{text}\n"


def put(github, text: str = "all well", *, run: int = 10, attempt: int = 1, marker: str = MARKER) -> str:
    number = RunNumber(run_id=run, attempt=attempt)
    return put_comment(github, 7, marker_line=marker, body=body(text, marker), run=number)


@pytest.fixture
def github(hub, connect):
    return connect(hub)


def test_the_first_run_comments(hub, github):
    assert put(github) == "commented on #7"
    assert hub.bodies() == [f"{MARKER}\n<!-- run 10.1 -->\n\nall well\n"]


def test_a_later_run_updates_the_comment_in_place(hub, github):
    put(github)
    assert put(github, "slower", run=11) == "updated the comment on #7"
    (text,) = hub.bodies()
    assert "slower" in text
    assert "<!-- run 11.1 -->" in text


def test_a_later_attempt_of_the_same_run_updates_it_too(hub, github):
    put(github, attempt=2)
    put(github, "second thoughts", attempt=3)
    assert "second thoughts" in hub.bodies()[0]


def test_an_earlier_run_that_ends_late_does_not_set_it_back(hub, github):
    put(github, "newer", run=11)
    assert "about a later run" in put(github, "older", run=10)
    assert "newer" in hub.bodies()[0]


def test_the_same_text_again_changes_nothing(hub, github):
    put(github)
    assert put(github) == "the comment on #7 says so already"
    assert hub.count("PATCH") == 0


def test_line_ends_that_github_changed_are_no_change(hub, github):
    put(github)
    (comment,) = hub.comments.values()
    comment["body"] = comment["body"].replace("\n", "\r\n").rstrip()
    put(github)
    assert hub.count("PATCH") == 0


def test_the_comment_is_found_on_the_third_page(hub, github):
    hub.page_ceiling = 2
    for index in range(4):
        hub.add_comment(f"talk {index}", ANN)
    hub.add_comment(body())
    put(github, "slower")
    assert hub.count("POST") == 0
    assert sum("slower" in text for text in hub.bodies()) == 1


def test_further_comments_of_the_same_marker_are_removed(hub, github):
    for _ in range(3):
        hub.add_comment(body())
    put(github, "one is enough")
    assert len(hub.bodies()) == 1


def test_comments_of_other_markers_stay(hub, github):
    put(github, marker="<!-- perfguard:nightly -->")
    put(github)
    put(github, "slower", run=11)
    assert len(hub.bodies()) == 2


def test_a_person_who_quotes_the_marker_keeps_the_comment(hub, github):
    hub.add_comment(body("mine"), ANN)
    put(github, "slower")
    assert body("mine") in hub.bodies()
    assert len(hub.bodies()) == 2


def test_a_bot_that_quotes_the_marker_further_down_keeps_its_comment(hub, github):
    hub.add_comment(f"> {MARKER}\n{MARKER}", BOT)
    put(github)
    assert len(hub.bodies()) == 2


def test_the_token_of_a_person_finds_its_own_comment_and_nobody_elses(hub, connect):
    hub.login = {"login": "carol", "type": "User"}
    hub.add_comment(body("mine"), ANN)
    github = connect(hub, token="ghp_secret")
    put(github)
    put(github, "slower", run=11)
    assert [comment["user"]["login"] for comment in hub.comments.values()] == ["ann", "carol"]


def test_a_run_number_in_the_text_does_not_hold_later_runs_off(hub, github):
    put(github, "```text\n<!-- run 999999999999.9 -->\n```")
    put(github, "slower", run=11)
    assert "slower" in hub.bodies()[0]


def test_a_lost_answer_leaves_one_comment_after_the_next_run(hub: FakeGitHub, github, pauses):
    hub.fail("POST", "comments", Response(status=502), after=True)
    put(github)
    assert len(hub.bodies()) == 2  # the first request took effect, though its answer was lost
    put(github, "next run", run=11)
    assert len(hub.bodies()) == 1
    assert "next run" in hub.bodies()[0]


def test_a_dropped_connection_leaves_one_comment_after_the_next_run(hub: FakeGitHub, github, pauses):
    def drop(request):
        request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return Response()

    hub.fail("POST", "comments", drop, after=True)
    put(github)
    assert len(hub.bodies()) == 2
    put(github, "next run", run=11)
    (text,) = hub.bodies()
    assert "next run" in text


def test_an_outage_while_writing_is_an_error(hub, github, pauses):
    hub.fail("POST", "comments", refusal(503, "unavailable"), times=99)
    with pytest.raises(GitHubError, match="503"):
        put(github)


def test_an_earlier_attempt_that_ends_late_does_not_set_it_back(hub, github):
    put(github, "second attempt", attempt=2)
    put(github, "first attempt", attempt=1)
    (text,) = hub.bodies()
    assert "second attempt" in text
    assert hub.count("PATCH") == 0


def test_the_latest_of_several_comments_holds_an_earlier_run_off(hub, github):
    put(github, "later", run=20)
    hub.add_comment(f"{MARKER}\n<!-- run 5.1 -->\nold")
    put(github, "between", run=10)
    assert hub.count("PATCH") == hub.count("DELETE") == 0
    assert not any("between" in text for text in hub.bodies())


def test_the_token_of_a_person_finds_its_own_comment_beside_a_bots(hub, connect):
    hub.add_comment(body("of a job"))
    hub.login = {"login": "carol", "type": "User"}
    hub.add_comment(body("mine"))
    put(connect(hub, token="ghp_secret"), "slower")
    assert hub.count("POST") == 0
    assert len(hub.bodies()) == 1


def test_a_text_that_quotes_the_marker_has_one_run_number(hub, github):
    put(github, f"quoted:\n{MARKER}")
    (text,) = hub.bodies()
    assert text.count("<!-- run 10.1 -->") == 1
