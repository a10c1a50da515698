"""Runs of a machine that cannot reach the database, sent to `perfguard serve`."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.recorded_runs import DATA
from tests.served_histories import served

pytest.importorskip("litestar")


@pytest.fixture
def server(empty_project, tmp_path):
    """A server over a database of its own, and a token for adding runs."""
    place = str(tmp_path / "team.sqlite")
    empty_project.environment["PERFGUARD_PROJECT"] = "team/nets"
    token = empty_project.run("db", "token", "add", "ci", "--for", "ingest", PERFGUARD_DATABASE=place).stdout.strip()
    before = empty_project.environment.get("PERFGUARD_DATABASE")
    empty_project.environment["PERFGUARD_DATABASE"] = place
    with served(empty_project) as url:
        empty_project.environment["PERFGUARD_DATABASE"] = before or "off"
        yield url, token, place


def test_a_run_is_sent_once_and_shown_by_the_server(server, empty_project):
    url, token, place = server
    shutil.copytree(DATA / "paired", empty_project.path / ".perfguard" / "runs" / "20260921T142640-3fa2c1")
    sent = [empty_project.run("history", "push", "--to", url, PERFGUARD_TOKEN=token) for _ in range(2)]
    assert [done.returncode for done in sent] == [0, 0], sent[0].stderr
    assert ["sent" in sent[0].stdout, "was there already" in sent[1].stdout] == [True, True]
    logged = empty_project.run("history", "log", "--format", "json", PERFGUARD_DATABASE=place)
    assert [entry["run"]["run_id"] for entry in json.loads(logged.stdout)] == ["20260921T142640-3fa2c1"]


def test_a_wrong_token_a_wrong_address_and_no_token_are_named(server, empty_project):
    url, token, place = server
    shutil.copytree(DATA / "paired", empty_project.path / ".perfguard" / "runs" / "20260921T142640-3fa2c1")
    for address, variables, code, message in (
        (url, {"PERFGUARD_TOKEN": "pg_wrong"}, 2, "refuses the run"),
        (url, {}, 2, "PERFGUARD_TOKEN is not set"),
        ("ftp://x", {"PERFGUARD_TOKEN": token}, 2, "write the address of the server"),
        ("http://127.0.0.1:9", {"PERFGUARD_TOKEN": token}, 3, "cannot be reached: Connection refused"),
        (url.replace("http:", "https:"), {"PERFGUARD_TOKEN": token}, 3, "is it http:// instead of https://?"),
    ):
        done = empty_project.run("history", "push", "--to", address, **variables)
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    listed = json.loads(empty_project.run("db", "token", "list", "--format", "json", PERFGUARD_DATABASE=place).stdout)
    assert [(each["name"], each["scope"], each["revoked_at"]) for each in listed] == [("ci", "ingest", None)]
    assert empty_project.run("db", "token", "revoke", "1", PERFGUARD_DATABASE=place).returncode == 0
    refused = empty_project.run("history", "push", "--to", url, PERFGUARD_TOKEN=token)
    assert (refused.returncode, "refuses the run" in refused.stderr) == (2, True)
