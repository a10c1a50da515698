"""A recording and a result of schema 1, whose reasons were sentences, are still read and shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from perfguard.codec import to_json
from perfguard.config import load_config
from perfguard.gate.show import show_run
from perfguard.records.facts import RECORDED_TEXT, recorded_text
from perfguard.records.result import RESULT_SCHEMA
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.comment.comment import CommentContext, render_comment
from perfguard.report.comment.markdown import render_markdown
from perfguard.report.html.page import render_report
from perfguard.report.pages.build import read_run
from perfguard.report.terminal.result import render_result
from perfguard.store.artifacts import parse_result
from tests.found_facts import codes_of
from tests.printed_text import printed
from tests.watched_runs import case_of, polled

OLD = Path(__file__).parents[1] / "data" / "schema-1"
SLOWER, FAILING = "step.resnet[batch=8,dtype=bf16]", "step.lstm[hidden=256]"
STORED = json.loads((OLD / "result.json").read_bytes())


@pytest.fixture
def result():
    return parse_result((OLD / "result.json").read_bytes(), source="result.json")


@pytest.fixture
def project(tmp_path):
    shutil.copytree(OLD, tmp_path / ".perfguard" / "runs" / "old")
    return tmp_path


def test_it_is_of_schema_1_and_holds_sentences():
    assert STORED["schema"] == 1
    assert isinstance(STORED["gate"]["verdicts"][0]["reason"], str)
    start, *_, end = [json.loads(line) for line in (OLD / "events.jsonl").read_bytes().splitlines()]
    assert (start["schema"], end["event"]) == (1, "run_finished")
    assert isinstance(end["reason"], str)


def test_the_sentences_of_a_result_are_facts(result):
    slower, failing = result.gate.verdicts
    stored_slower, stored_failing = STORED["gate"]["verdicts"]
    assert result.reasons == (recorded_text(STORED["reason"]),)
    assert result.gate.reasons == (recorded_text(STORED["gate"]["reason"]),)
    assert (slower.case_id, slower.outcome) == (SLOWER, Outcome.REGRESSED)
    assert slower.reasons == (recorded_text(stored_slower["reason"]),)
    assert [found.fact for found in slower.signals] == [
        recorded_text(found["reason"]) for found in stored_slower["signals"]
    ]
    assert slower.confirmation.confirmed
    assert (failing.case_id, failing.outcome) == (FAILING, Outcome.FAILED)
    assert failing.comparison.problem == recorded_text(stored_failing["comparison"]["problem"])


def test_a_result_that_was_read_is_written_in_the_new_schema_and_read_again(result):
    assert (result.schema, json.loads(to_json(result))["schema"]) == (RESULT_SCHEMA, RESULT_SCHEMA)
    assert parse_result(to_json(result).encode(), source="again") == result


def test_a_result_is_shown_with_its_sentences(result):
    sentence = STORED["gate"]["verdicts"][0]["reason"]
    for text in (
        printed(render_result(result, width=500), 500),
        render_markdown(result),
        render_comment(result, CommentContext(marker="gate")),
    ):
        plain = text.replace("\\", "")
        assert sentence in plain
        assert STORED["reason"] in plain


def test_watch_shows_the_sentences_of_the_recording():
    view = polled(OLD).view
    assert (view.outcome, view.exit_code, view.problems) == ("regressed", 1, ())
    assert codes_of(view.reasons) == [RECORDED_TEXT]
    assert codes_of(case_of(view, SLOWER).reasons) == [RECORDED_TEXT]


def test_show_judges_the_recording(project):
    shown = show_run(load_config(project, {}, {}), project / ".perfguard" / "runs" / "old")
    assert (shown.verdict, shown.exit_code) == ("regressed", 1)
    assert {verdict.case_id: verdict.outcome for verdict in shown.gate.verdicts} == {
        SLOWER: Outcome.REGRESSED,
        FAILING: Outcome.FAILED,
    }


def test_a_report_shows_what_the_run_concluded(project):
    content = read_run(load_config(project, {}, {}), project / ".perfguard" / "runs" / "old")
    assert (content.problems, content.is_rejudged) == ((), False)
    assert content.result.gate.outcome is GateOutcome.REGRESSED
    assert content.result.reasons == (recorded_text(STORED["reason"]),)
    assert STORED["gate"]["verdicts"][1]["reason"] in render_report([content], source="test")
