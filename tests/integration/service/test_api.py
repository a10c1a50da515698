"""The JSON API over both databases."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from litestar.testing import TestClient
from sqlalchemy import select

from perfguard.errors import DatabaseError
from perfguard.fleet.overview import read_status
from perfguard.fleet.shards import claim, renew
from perfguard.history.access import create_token, read_tokens, revoke_token
from perfguard.history.queries import read_log
from perfguard.history.recording import add_run
from perfguard.history.run_records import stored_json
from perfguard.history.tables import access_tokens
from perfguard.records.history import MeasuredRun, RecordedSamples, TokenScope
from perfguard.service.app import create_app, host_names_for
from perfguard.service.shared import Service, Settings
from tests import fleet_hosts
from tests.changed_values import replace
from tests.served_histories import CASE, MACHINES, PROJECT, RUNS, STEADY, STEP_AT, a_record, commit, filled

STEP = {"case": CASE, "machine": MACHINES[0], "run": f"run-{MACHINES[0]}-{STEP_AT:03d}"}


def got(client, path, **query):
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def changes_of(client, **query):
    """All changes, once every series was looked at."""
    deadline = time.monotonic() + 60
    while (found := got(client, "/api/changes", **query))["computed"] < found["series"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found["changes"]


class TestReading:
    def test_projects_and_series(self, client):
        assert got(client, "/api/projects") == [PROJECT]
        found = got(client, "/api/series")
        assert [(each["case_id"], each["machine_id"]) for each in found] == [
            (case, machine) for case in (STEADY, CASE) for machine in reversed(MACHINES)
        ]

    def test_points_of_a_series(self, client):
        found = got(client, "/api/points", case=CASE, machine=MACHINES[0])
        assert found["runs"] == RUNS == len(found["points"]["at"])
        assert found["points"]["commit"][STEP_AT] == commit(STEP_AT)
        assert [band["stack_id"] for band in found["bands"]] == ["torch-2.12", "torch-2.13"]
        assert found["bands"][0]["end"] == found["bands"][1]["start"]
        assert [len(band["changed"]) for band in found["bands"]] == [0, 1]
        (change,) = found["changes"]
        assert change["log_ratio"] == pytest.approx(0.0488, abs=0.005)

    def test_a_long_series_is_decimated_and_its_changes_stay(self, client):
        found = got(client, "/api/points", case=CASE, machine=MACHINES[0], most=10)
        assert found["runs"] == RUNS
        assert len(found["points"]["at"]) <= 11
        assert STEP["run"] in found["points"]["run_id"]

    def test_an_answer_is_new_once_something_was_recorded(self, client, history):
        before = got(client, "/api/points", case=CASE, machine=MACHINES[0])
        add_run(history, a_record(RUNS, MACHINES[0]))
        deadline = time.monotonic() + 10
        while got(client, "/api/points", case=CASE, machine=MACHINES[0])["runs"] == before["runs"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def test_changes_of_all_series(self, client):
        (change,) = changes_of(client)
        assert (change["case_id"], change["machine_id"], change["run_id"]) == tuple(STEP.values())
        assert (change["cause"], change["state"]) == ("code", "new")
        assert (change["commit_before"], change["commit_after"]) == (commit(STEP_AT - 1), commit(STEP_AT))

    def test_a_series_whose_only_run_was_corrected_hides_no_changes(self, client, history):
        wrong = a_record(RUNS, MACHINES[0], cases=("a.first", CASE))
        add_run(history, wrong)
        add_run(history, replace(wrong, cases=wrong.cases[1:]))
        assert [change["run_id"] for change in changes_of(client)] == [STEP["run"]]
        answer = client.get("/api/points", params={"case": "a.first", "machine": MACHINES[0]})
        assert answer.status_code == 404

    def test_a_change_has_the_command_that_finds_its_commit(self, client):
        changes_of(client)
        found = got(client, "/api/change", **STEP)
        assert found["commands"][0] == (
            f"perfguard bisect --good {commit(STEP_AT - 1)[:12]} --bad {commit(STEP_AT)[:12]} --case '{CASE}'"
        )
        assert (found["elsewhere"], found["other_cases"]) == ([], [])
        assert found["software"]["stack_id"] == "torch-2.13"
        assert found["software"]["changed"] == [{"name": "stack_id", "before": "torch-2.12", "after": "torch-2.13"}]

    def test_two_revisions(self, client):
        found = got(client, "/api/compare", before=commit(30)[:8], after=commit(50)[:8])
        assert (found["before"], found["after"], found["cases"]) == (commit(30), commit(50), [])
        slowest = found["too_little_data"][0]
        assert (slowest["case_id"], slowest["machine_id"], slowest["lower"]) == (CASE, MACHINES[0], None)

    def test_runs(self, client):
        found = got(client, "/api/runs", last=3)
        assert [run["at"] for run in found] == sorted((run["at"] for run in found), reverse=True)
        assert len(found) == 3

    def test_the_fleet_shows_stalled_shards(self, client, history):
        submission = fleet_hosts.submitted(history, 2)
        shard = read_status(history, submission_id=submission).shards[0]
        attempt = claim(history, shard.id, "host-1")
        renew(history, [attempt.token], seconds=-60.0)
        found = got(client, "/api/fleet")
        assert [(each["id"], each["host"]) for each in found["stalled"]] == [(shard.id, "host-1")]
        assert found["waiting"] == {fleet_hosts.CLASS: 1}
        assert found["submissions"][0]["shards"] == {"running": 1, "waiting": 1}


class TestRefusing:
    @pytest.mark.parametrize(
        ("path", "query", "status", "said"),
        [
            ("/api/points", {"case": "none"}, 404, "has no case 'none'"),
            ("/api/points", {}, 400, "case"),
            ("/api/points", {"case": CASE, "most": 10**9}, 400, "most"),
            ("/api/points", {"case": "x" * 10_000}, 400, "case"),
            ("/api/points", {"case": "a\0b"}, 400, "NUL"),
            ("/api/compare", {"before": "zz", "after": "yy"}, 404, "no recorded commit begins with 'zz'"),
            ("/api/compare", {"before": "", "after": ""}, 404, "no recorded commit"),
            ("/api/change", {**STEP, "run": "none"}, 404, "no change at run 'none'"),
            ("/api/runs", {"last": 0}, 400, "last"),
            ("/api/none", {}, 404, ""),
            ("/api/runs", {"project": [PROJECT, "other"]}, 400, "given once"),
            ("/api/runs", {"project": ["", "other"]}, 400, "given once"),
        ],
    )
    def test_nonsense_is_named(self, client, path, query, status, said):
        answer = client.get(path, params=query)
        assert answer.status_code == status
        assert said in answer.text
        assert "Traceback" not in answer.text

    @pytest.mark.parametrize(
        ("path", "status"), [("/none", 404), ("/case?case=none", 404), ("/change", 400), ("/case?case=a%00b", 400)]
    )
    def test_a_browser_gets_a_page(self, client, path, status):
        answer = client.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (status, "text/html")
        assert f"<h1>{status}</h1>" in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]

    def test_a_database_that_is_away_is_not_named(self, client, monkeypatch, capsys):
        def away(*_, **__):
            raise DatabaseError("the database postgresql://me@host/secret fails: refused")

        monkeypatch.setattr("perfguard.service.api.log_answer", away)
        answer = client.get("/api/runs")
        assert (answer.status_code, "secret" in answer.text) == (503, False)
        assert "secret" in capsys.readouterr().err

    def test_nothing_can_be_changed_by_reading(self, client):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in ("/", "/api/points", "/api/changes", "/api/fleet"):
                assert client.request(method, path).status_code in (400, 404, 405)

    def test_another_name_of_the_host_is_refused(self, database):
        settings = Settings(project=PROJECT, host_names=host_names_for("127.0.0.1"))
        with TestClient(create_app(database, settings), base_url="http://evil.example") as client:
            assert client.get("/api/projects").status_code == 400
        with TestClient(create_app(database, settings), base_url="http://127.0.0.1:8420") as client:
            assert client.get("/api/projects").status_code == 200
        assert host_names_for("0.0.0.0") == ()

    def test_too_many_requests_are_put_off(self, client):
        codes = {client.get("/health").status_code for _ in range(1_300)}
        assert codes == {200, 429}

    def test_every_answer_has_the_headers_that_protect_it(self, client):
        for path in ("/", "/api/projects", "/api/points?case=none", "/assets/serve.js", "/api/none"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def guarded(database):
    settings = Settings(project=PROJECT, needs_token=True)
    with TestClient(create_app(filled(database, runs=2), settings), base_url="http://perf.example") as client:
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


class TestTokens:
    def test_reading_needs_one_where_it_is_required(self, guarded, database):
        refused = guarded.get("/api/projects")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="perfguard"')
        token = create_token(database, "a colleague", TokenScope.READ)
        assert guarded.get("/api/projects", headers=bearer(token)).json() == [PROJECT]
        assert guarded.get("/", auth=("anyone", token)).status_code == 200
        assert guarded.get("/assets/serve.js").status_code == 200

    def test_a_revoked_token_is_worthless(self, guarded, database):
        token = create_token(database, "a colleague", TokenScope.READ)
        revoke_token(database, read_tokens(database)[0].id)
        assert guarded.get("/api/projects", headers=bearer(token)).status_code == 401

    def test_a_token_of_another_project_is_refused(self, guarded, database):
        token = bearer(create_token(database, "others", TokenScope.READ, project="team/other"))
        assert guarded.get("/api/runs", params={"project": PROJECT}, headers=token).status_code == 403
        assert guarded.get("/api/runs", params={"project": "team/other"}, headers=token).json() == []
        assert guarded.get("/api/runs", params={"project": ["team/other", PROJECT]}, headers=token).status_code == 400
        assert guarded.get("/api/runs", params={"project": ["", PROJECT]}, headers=token).json() == []  # its own

    def test_a_token_of_a_project_leads_to_it(self, guarded, database):
        add_run(database, a_record(3, MACHINES[0], project="team/other"))
        token = bearer(create_token(database, "others", TokenScope.READ, project="team/other"))
        answer = guarded.get("/compare", params={"before": "zz", "after": "yy"}, headers=token, follow_redirects=False)
        assert answer.status_code == 307
        assert answer.headers["location"] == "/compare?before=zz&after=yy&project=team%2Fother"
        assert [run["run_id"] for run in guarded.get("/api/runs", headers=token).json()] == [f"run-{MACHINES[0]}-003"]

    def test_a_token_of_all_projects_may_choose_one(self, guarded, database):
        add_run(database, a_record(3, MACHINES[0], project="team/other"))
        token = bearer(create_token(database, "a colleague", TokenScope.READ))
        assert "<option>team/other</option>" in guarded.get("/cases", headers=token).text

    def test_a_token_of_one_project_says_nothing_of_others(self, guarded, database):
        for project in (PROJECT, "secret/one"):
            fleet_hosts.submitted(database, 1, work_=replace(fleet_hosts.WORK, project=project))
        add_run(database, a_record(3, MACHINES[0], project="secret/one"))
        token = bearer(create_token(database, "a colleague", TokenScope.READ, project=PROJECT))
        assert guarded.get("/api/projects", headers=token).status_code == 403
        for path in ("/", "/cases", "/fleet", "/api/fleet", "/api/runs"):
            answer = guarded.get(path, headers=token)
            assert answer.status_code == 200
            assert "secret/one" not in answer.text, path

    def test_a_token_that_adds_runs_reads_nothing(self, guarded, database):
        token = create_token(database, "ci", TokenScope.INGEST)
        assert guarded.get("/api/runs", headers=bearer(token)).status_code == 401

    def test_the_database_keeps_no_token_itself(self, database):
        token = create_token(database, "a colleague", TokenScope.READ)
        with database.reading() as connection:
            (row,) = connection.execute(select(access_tokens)).all()
        assert token not in map(str, row)


def a_body(**fields):
    record = a_record(RUNS, MACHINES[0])
    kept = {CASE: RecordedSamples(candidate_s=((0.04, 0.041),))}
    body = json.loads(stored_json(MeasuredRun(record=record, samples=kept)))
    body["record"].update(fields)
    return body


class TestIngest:
    @pytest.fixture
    def token(self, history):
        return create_token(history, "ci", TokenScope.INGEST, project=PROJECT)

    def test_a_run_is_added_once(self, client, history, token):
        first, second = (client.post("/api/runs", json=a_body(), headers=bearer(token)) for _ in range(2))
        assert [answer.status_code for answer in (first, second)] == [201, 201]
        assert [answer.json()["is_new"] for answer in (first, second)] == [True, False]
        assert read_log(history, PROJECT, last=1)[0].run.run_id == f"run-{MACHINES[0]}-{RUNS:03d}"

    def test_without_a_token_for_it_nothing_is_added(self, client, history, token):
        reading = create_token(history, "reader", TokenScope.READ)
        said = set()
        for headers in ({}, bearer("pg_wrong"), bearer(reading)):
            answer = client.post("/api/runs", json=a_body(), headers=headers)
            assert answer.status_code == 401
            said.add(answer.json()["detail"].partition(";")[0])
        assert len(said) == 3
        assert client.post("/api/runs", json=a_body(), auth=("ci", token)).status_code == 401
        assert client.post("/api/runs", json=a_body(project="other"), headers=bearer(token)).status_code == 403
        assert len(read_log(history, PROJECT, last=1000)) == RUNS * len(MACHINES)

    @pytest.mark.parametrize(
        "fields",
        [
            {"started_at": -1.0}, {"exit_code": 4096}, {"events_bytes": 2**63}, {"run_id": ""}, {"cases": [{}]},
            {"cases": [{"case_id": "a", "median_s": -1.0, "spread_ratio": None, "blocks": 3}]},
            {"cases": [{"case_id": "a", "median_s": 1.0, "spread_ratio": 1e9, "blocks": 3}]},
            {"cases": [{"case_id": "a", "median_s": 1.0, "spread_ratio": None, "blocks": 3}] * 2},
            {"problem": "none"},
        ],
    )  # fmt: skip
    def test_impossible_runs_are_refused(self, client, history, token, fields):
        answer = client.post("/api/runs", json=a_body(**fields), headers=bearer(token))
        assert answer.status_code == 400, answer.text
        assert answer.json()["detail"]
        assert len(read_log(history, PROJECT, last=1000)) == RUNS * len(MACHINES)

    def test_what_no_database_takes_is_escaped(self, client, history, token):
        body = json.dumps(a_body(run_id="run \0 \ud800")).encode()
        answer = client.post("/api/runs", content=body, headers={**bearer(token), "Content-Type": "application/json"})
        assert answer.status_code in (201, 400)
        assert "\0" not in read_log(history, PROJECT, last=1)[0].run.run_id

    def test_nothing_is_read_of_who_has_no_token(self, client):
        headers = {**bearer("pg_wrong"), "Content-Type": "application/json"}
        deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert client.post("/api/runs", content=deep, headers=headers).status_code == 401
        assert client.post("/api/runs", content=b"no JSON", headers=headers).status_code == 401

    def test_what_is_nested_too_deeply_is_refused(self, client, token):
        deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        headers = {**bearer(token), "Content-Type": "application/json"}
        assert client.post("/api/runs", content=deep, headers=headers).status_code == 400

    def test_a_run_beyond_all_measure_is_refused(self, client, token):
        body = b'{"record": "' + b"x" * (17 << 20) + b'"}'
        answer = client.post("/api/runs", content=body, headers={**bearer(token), "Content-Type": "application/json"})
        assert answer.status_code == 413


class TestProjectsApart:
    def test_facts_of_a_machine_are_those_that_the_project_itself_recorded(self, database):
        filled(database, runs=22)
        for number in (19, 20):
            add_run(database, a_record(number, MACHINES[0], project="nosy"))
        for project, known in ((PROJECT, 1), ("nosy", 0)):
            found = Service(database, Settings(project=project)).series(project, CASE, MACHINES[0])
            assert [len(band.changed) for band in found.bands] == [0, known]

    def test_commands_hold_no_command_of_a_stranger(self, database):
        case = "x'; touch /tmp/pwned; echo '"
        for number in range(RUNS):
            record = a_record(number, MACHINES[0], cases=(case,))
            slower = replace(record.cases[0], median_s=0.04 * (1.1 if number >= STEP_AT else 1.0))
            code = replace(record.candidate, commit=f"$(id) {number:035d}")
            add_run(database, replace(record, cases=(slower,), candidate=code))
        service = Service(database, Settings(project=PROJECT))
        (change,) = service.series(PROJECT, case, MACHINES[0]).changes
        found = service.details(PROJECT, case, MACHINES[0], change.run_id)
        service.changes.close()
        for command in found.commands:
            assert shlex.split(command)[0] == "perfguard"
            assert "touch" not in shlex.split(command)
            assert case in shlex.split(command)


class TestPages:
    @pytest.mark.parametrize(
        ("path", "query", "texts"),
        [
            ("/", {}, ["Changes"]),
            ("/cases", {}, [CASE.split(".")[1].split("[")[0], MACHINES[1]]),
            ("/case", {"case": CASE, "machine": MACHINES[0]}, [f"{RUNS} runs", "torch-2.13"]),
            ("/compare", {"before": commit(30)[:8], "after": commit(50)[:8]}, ["Too little data"]),
            ("/compare", {"before": "zz", "after": "yy"}, ["no recorded commit begins with"]),
            ("/change", STEP, ["perfguard bisect --good", "+5."]),
            ("/fleet", {}, ["Fleet"]),
        ],
    )
    def test_they_hold_what_they_show_without_a_script(self, client, path, query, texts):
        changes_of(client)
        answer = client.get(path, params=query)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        for text in texts:
            assert text in answer.text
        assert "<script>" not in answer.text
        assert "style=" not in answer.text

    def test_names_are_never_markup(self, client, history):
        hostile = '<img src=x onerror=alert(1)>"&'
        add_run(history, a_record(RUNS, MACHINES[0], cases=(hostile,)))
        for path, query in (("/cases", {}), ("/case", {"case": hostile, "machine": MACHINES[0]})):
            assert "<img" not in client.get(path, params=query).text

    def test_an_unknown_asset_is_not_there(self, client):
        for name in ("app.py", "..%2fapp.py", "uPlot.LICENSE", "none.js"):
            assert client.get(f"/assets/{name}").status_code == 404
