"""`perfguard report` on whole, killed, damaged and foreign runs, and on files that it must not touch."""

from __future__ import annotations

import json
import random
import re
import shutil

import pytest
from click.testing import CliRunner

from perfguard.cli.commands.runs import report_command as command
from perfguard.codec import to_json
from perfguard.config import load_config
from perfguard.errors import StoreError, UsageError
from perfguard.gate.show import show_run
from perfguard.records.facts import recorded_text
from perfguard.report.pages.build import read_run, report_on
from perfguard.report.pages.raw_files import MOST_RAW_BYTES, arm_facts, raw_files
from perfguard.report.pages.site import write_page
from tests.changed_values import replace
from tests.html_reports import a_profile, a_project
from tests.recorded_runs import DATA, SLOWER

ODD_NUMBERS = ["-1", "0", "1e308", "1e-320", "-1e308", "null", "1e999", "9" * 40, '"x"', "[]", "1e18"]


@pytest.fixture
def run(tmp_path):
    return a_project(tmp_path, "paired") / ".perfguard" / "runs" / "paired"


@pytest.fixture
def loaded(tmp_path):
    return load_config(tmp_path, {}, {})


def lines_of(run):
    return (run / "events.jsonl").read_bytes().splitlines(keepends=True)


def reported(tmp_path, monkeypatch, *arguments):
    monkeypatch.chdir(tmp_path)
    return CliRunner().invoke(command, arguments)


def test_the_latest_run_is_written_by_default(tmp_path, run, monkeypatch):
    done = reported(tmp_path, monkeypatch)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("wrote report.html (")
    assert "regressed" in (tmp_path / "report.html").read_text()


def test_several_runs_go_into_one_file(tmp_path, run, monkeypatch):
    shutil.copytree(DATA / "rounds", run.parent / "rounds")
    done = reported(tmp_path, monkeypatch, "paired", "rounds", "-o", "out/both.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "both.html").read_text()
    assert 'id="run-2"' in page
    assert "2 runs" in page


def test_a_file_of_somebody_else_is_left_alone_without_force(tmp_path, run, monkeypatch):
    mine = tmp_path / "report.html"
    mine.write_text("<!doctype html><p>mine")
    done = reported(tmp_path, monkeypatch)
    assert isinstance(done.exception, UsageError)
    assert "--force" in str(done.exception)
    assert mine.read_text() == "<!doctype html><p>mine"
    assert reported(tmp_path, monkeypatch, "--force").exit_code == 0
    assert reported(tmp_path, monkeypatch).exit_code == 0


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_page(tmp_path / "file" / "report.html", "<!doctype html>", force=False)


def test_a_run_that_was_killed_is_judged_as_far_as_it_came(run, loaded):
    kept = lines_of(run)
    (run / "events.jsonl").write_bytes(b"".join(kept[: len(kept) // 2]) + kept[len(kept) // 2][:40])
    content = read_run(loaded, run)
    assert content.is_rejudged
    assert content.result.gate is not None
    assert any("its writer was probably killed" in problem for problem in content.problems)
    assert any("no end" in problem for problem in content.problems)
    assert content.evidence[SLOWER].blocks


def test_a_damaged_line_costs_itself_only_and_is_said(run, loaded):
    kept = lines_of(run)
    kept[20] = b"\xff\x00 no json\n"
    (run / "events.jsonl").write_bytes(b"".join(kept))
    content = read_run(loaded, run)
    assert content.result.verdict == "regressed"
    assert any("line 21" in problem for problem in content.problems)


def test_a_result_of_another_shape_is_said_and_the_run_judged_again(run, loaded):
    (run / "result.json").write_text('{"schema": 1, "gate": 3}')
    content = read_run(loaded, run)
    assert content.is_rejudged
    assert any("result.json" in problem for problem in content.problems)


def test_what_the_run_itself_concluded_is_shown_where_it_left_that(run, loaded):
    result = replace(show_run(loaded, run), reasons=(recorded_text("as it was said"),))
    (run / "result.json").write_text(to_json(result))
    content = read_run(loaded, run)
    assert not content.is_rejudged
    assert content.result.reasons == result.reasons


def test_an_attribution_that_cannot_be_read_leaves_the_largest_ops(run, loaded):
    whole = read_run(loaded, run).attributions[SLOWER]
    (run / "ops-1.json").write_text("[]")
    content = read_run(loaded, run)
    assert len(content.attributions[SLOWER].deltas) < len(whole.deltas)
    assert any("ops-1.json" in problem for problem in content.problems)


@pytest.mark.parametrize("events", [b"", b"\x00\xff", b'{"event": "note"}\n', b"[" * 100_000 + b"\n"])
def test_a_recording_that_is_none_gives_a_page_that_says_so(run, loaded, events):
    (run / "events.jsonl").write_bytes(events)
    content = read_run(loaded, run)
    assert content.problems
    assert "nothing can be said of this run" in report_on(loaded, [run])


def disturbed(content, draw, numbers):
    """The same text with some of its numbers replaced by what damage, or somebody who means harm, could leave."""
    found = list(re.finditer(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", content))
    for match in sorted(draw.sample(found, min(numbers, len(found))), key=lambda match: -match.start()):
        content = content[: match.start()] + draw.choice(ODD_NUMBERS) + content[match.end() :]
    return content


@pytest.mark.parametrize("seed", range(16))
def test_whatever_numbers_a_run_holds_it_has_a_page(run, loaded, seed):
    draw = random.Random(seed)
    documents = {"result.json": to_json(read_run(loaded, run).result), "profile.json": to_json(a_profile().profile)}
    kept = [line.decode() for line in lines_of(run)]
    lines = [disturbed(line, draw, 1) if draw.random() < 0.03 else line for line in kept]
    (run / "events.jsonl").write_text("".join(lines))
    (run / "ops-1.json").write_text(disturbed((run / "ops-1.json").read_text(), draw, 4))
    if seed % 3:
        name = list(documents)[seed % 2]
        (run / name).write_text(disturbed(documents[name], draw, 8))
    assert report_on(loaded, [run]).startswith("<!doctype html>")


def test_a_profile_is_shown_from_its_report(run, loaded):
    (run / "profile.json").write_text(to_json(a_profile().profile))
    content = read_run(loaded, run)
    assert content.result is None
    assert content.profile == a_profile().profile
    (run / "profile.json").write_text("{}")
    assert any("profile.json" in problem for problem in read_run(loaded, run).problems)


def test_a_long_recording_goes_without_its_samples_and_says_so(run):
    kept = lines_of(run)
    samples = [line for line in kept if b'"event":"sample"' in line]
    copies = 1 + MOST_RAW_BYTES // sum(map(len, samples))
    (run / "events.jsonl").write_bytes(b"".join([*kept, *samples * copies]))
    recording = next(raw_files(run))
    assert recording.size_bytes > MOST_RAW_BYTES
    assert b'"event":"sample"' not in recording.content
    assert len(recording.content.splitlines()) == len(kept) - len(samples)
    assert f"without its {len(samples) * (copies + 1)} samples" in recording.note


def test_what_differs_between_the_arms_is_told_by_name(run):
    arm = {"code": [["a.py", "0" * 64]], "distributions": ["torch==2.12"], "environment": []}
    other = {
        "code": [["a.py", "1" * 64], ["b.py", "2" * 64]],
        "distributions": ["torch==2.13"],
        "environment": [["OMP_NUM_THREADS", "4"]],
    }
    (run / "arms.json").write_text(json.dumps({"baseline": arm, "candidate": other}))
    assert [(fact.topic, fact.differences) for fact in arm_facts(run)] == [
        ("imported files", ("a.py differs", "b.py: absent → present")),
        ("packages", ("torch: 2.12 → 2.13",)),
        ("variables", ("OMP_NUM_THREADS: absent → 4",)),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"baseline": 1, "candidate": 2}', '{"baseline": {"code": 3}}'])
def test_arms_of_another_shape_differ_in_nothing_known(run, text):
    (run / "arms.json").write_text(text)
    assert arm_facts(run) == ()
