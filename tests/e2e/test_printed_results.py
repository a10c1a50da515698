"""What commands print, for people and for programs; no torch."""

from __future__ import annotations

import json

import jsonschema
import pytest


def test_json_fits_the_published_schema_and_is_alone_on_stdout(project):
    schema = json.loads(project.run("schema", "result").stdout)
    done = project.run("compare", "--measure-anyway", "--max-blocks", "2", "--format", "json")
    jsonschema.validate(json.loads(done.stdout), schema)
    assert json.loads((project.latest_run() / "result.json").read_text()) == json.loads(done.stdout)


def test_unchanged_means_within_the_effect_that_must_not_pass(project):
    result = project.result("compare", "--measure-anyway", "--max-blocks", "2", "-c", "tiny.sort", "--detect", "1%")
    assert result["gate"]["policy"]["equivalence_ratio"] == 0.01


def test_every_line_of_the_events_fits_the_published_schema(project):
    schema = jsonschema.Draft202012Validator(json.loads(project.run("schema", "events").stdout))
    project.run("compare", "--measure-anyway", "--max-blocks", "2", "-c", "tiny.sort")
    lines = (project.latest_run() / "events.jsonl").read_text().splitlines()
    assert len(lines) > 10
    for line in lines:
        schema.validate(json.loads(line))


def test_markdown_holds_the_verdict_and_a_row_for_each_case(project):
    done = project.run("run", "--rounds", "2", "--format", "md")
    assert done.stdout.startswith("## perfguard: measured")
    assert "| `tiny.sum` | 2 |" in done.stdout


def test_run_measures_every_case_and_compares_nothing(project):
    result = project.result("run", "--rounds", "2")
    assert (result["exit_code"], result["verdict"], result["gate"]) == (0, "measured", None)
    assert {case["case_id"]: case["rounds"] for case in result["measured"]} == {"tiny.sum": 2, "tiny.sort": 2}
    assert all(case["median_s"] > 0 for case in result["measured"])


def test_list_shows_the_projects_own_suite_and_benchmarks(project):
    done = project.run("list")
    assert done.returncode == 0
    assert "tiny     2 gating cases" in done.stdout
    assert "tiny.sort" in done.stdout
    cases = json.loads(project.run("list", "tiny.*", "--format", "json").stdout)
    assert [case["id"] for case in cases] == ["tiny.sort", "tiny.sum"]


def test_a_list_tells_of_a_suite_that_asks_for_what_is_gone_and_goes_on(project):
    project.replace("perfguard.toml", '"tiny.sort"]', '"tiny.gone"]')
    done = project.run("list")
    assert done.returncode == 0
    assert "✗ the suite 'tiny' asks for what is not there: no case matches 'tiny.gone'" in done.stdout
    assert "Benchmarks" in done.stdout
    assert "tiny.sort" in done.stdout


def test_config_show_names_the_origin_of_each_value(project):
    shown = json.loads(project.run("config", "show", "--origin", "--json", PERFGUARD_SEED="7").stdout)
    assert shown["samples"] == {"value": 3, "origin": str(project.path / "perfguard.toml")}
    assert shown["seed"] == {"value": 7, "origin": "PERFGUARD_SEED"}
    assert shown["warmups"]["origin"] == "built-in"


def test_doctor_gives_one_row_for_each_check(project):
    done = project.run("doctor", "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == (3 if any(row["status"] == "fail" for row in rows) else 0)
    assert len({row["id"] for row in rows}) == len(rows) > 5


def test_version_names_perfguard_and_pyperf(empty_project):
    versions = json.loads(empty_project.run("version", "--json").stdout)
    assert {"perfguard", "python", "pyperf"} <= versions.keys()


def test_a_reader_that_goes_away_is_no_error(project):
    process = project.start("list", "--cases")
    process.stdout.close()
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in said


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_a_regression_fails_although_nobody_reads_the_result(project, output_format):
    process = project.start(
        "compare", "-c", "tiny.sum", "--inject", "tiny.sum=+300%", "--max-blocks", "16", "--format", output_format
    )
    process.stdout.close()
    process.communicate(timeout=300)
    result = json.loads((project.latest_run() / "result.json").read_text())
    assert process.returncode == result["exit_code"] != 0
