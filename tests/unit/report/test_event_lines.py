"""Events as lines, for logs and for people who hear them read."""

from __future__ import annotations

from datetime import timezone

import pytest

from perfguard.records import events as happened
from perfguard.records.facts import Severity, fact, recorded_text
from perfguard.records.run import Arm, Stage
from perfguard.report.event_lines import line_text, plain_line
from perfguard.watch.sources.event_tail import EventTail
from perfguard.watch.view.run import level_of
from perfguard.watch.view.run_view import LogLine
from tests.recorded_runs import DATA

VERDICT = {"case_id": "a", "log_ratio": 0.05, "lower": 0.04, "upper": 0.06, "reasons": (recorded_text("5 % slower"),)}
EVENTS = {
    "run": happened.RunStarted(
        run_id="r1", schema=1, mode="paired", suite="pr", case_ids=("a", "b"), command=(), budget_s=90.0
    ),
    "calibrated": happened.CaseCalibrated(case_id="a", inner_loops=1, iteration_s=0.02),
    "block began": happened.BlockStarted(block=2, hash_seed=1, data_seed=1, case_ids=("a",)),
    "block ended": happened.BlockFinished(
        block=2, started_at=0.0, duration_s=12.2, steal_ratio=0.001, involuntary_switches=0
    ),
    "failed": happened.CaseFailed(
        case_id="a", arm=Arm.CANDIDATE, missing=False, reason=fact("case.raised", error="boom"), detail=""
    ),
    "note": happened.Noted(fact=fact("recorded.text", severity=Severity.NOTABLE, text="no canary")),
    "look": happened.InterimAnalysis(blocks=5, final=False, decided={"a": "regressed", "b": "unchanged"}),
    "last look": happened.InterimAnalysis(blocks=9, final=True, decided={}),
    "stage": happened.StageStarted(stage=Stage.CONFIRMATION, case_ids=("a",)),
    "regressed": happened.VerdictReached(outcome="regressed", **VERDICT),
    "unchanged": happened.VerdictReached(outcome="unchanged", **VERDICT),
    "ended": happened.RunFinished(outcome="inconclusive", exit_code=4, reasons=(recorded_text("too noisy"),)),
}


def a_line(what, level="info") -> LogLine:
    return LogLine(seq=0, t_wall=3661.0, level=level, what=what)


def test_every_kind_of_event_has_its_line():
    """The one golden text of the log."""
    assert [line_text(a_line(event)) for event in EVENTS.values()] == [
        "run r1: 2 cases of pr, two arms in interleaved blocks, at most 1 min 30 s",
        "a: 20.00 ms per iteration, 1 iteration per sample",
        "block 3 begins with 1 case",
        "block 3 took 12 s, 0.10 % stolen",
        "a failed in the candidate: boom",
        "no canary",
        "answered after 5 blocks: a regressed, b unchanged",
        "final analysis, after 9 blocks",
        "confirming flags with relocated arms: 1 case",
        "a regressed: 5 % slower",
        "a unchanged: 5 % slower",
        "run ended, inconclusive, exit code 4: too noisy",
    ]


@pytest.mark.parametrize(
    ("name", "level"),
    [("run", "info"), ("failed", "error"), ("note", "warning"), ("look", "error"), ("last look", "info"),
     ("regressed", "error"), ("unchanged", "info"), ("ended", "warning")],
)  # fmt: skip
def test_an_event_is_as_grave_as_what_it_says(name, level):
    assert level_of(EVENTS[name]) == level


def test_what_comes_many_times_a_second_is_no_line():
    assert level_of(happened.ControlTimed(block=0, value_s=1.0)) is None
    assert level_of(happened.InterimAnalysis(blocks=5, final=False, decided={})) is None


@pytest.mark.parametrize("name", ["paired", "rounds"])
def test_a_whole_run_is_told_in_lines_that_move_no_terminal(name):
    seen = EventTail(DATA / name / "events.jsonl").poll().events
    texts = [line_text(a_line(one.event)) for one in seen if level_of(one.event)]
    assert isinstance(seen[-1].event, happened.RunFinished)
    assert all(text and text.isprintable() for text in texts)
    assert len(texts) < len(seen) / 4


def test_cases_go_by_their_short_names_where_these_are_known():
    line = a_line(EVENTS["regressed"])
    assert line_text(line, {"a": "short"}) == line_text(line).replace("a ", "short ", 1)


def test_control_characters_of_a_benchmark_become_spaces():
    failed = happened.CaseFailed(
        case_id="a", arm=Arm.BASELINE, missing=False, reason=fact("case.raised", error="x\x1b[2J\ny"), detail=""
    )
    assert line_text(a_line(failed)) == "a failed in the baseline: x [2J y"


@pytest.mark.parametrize(("level", "plain", "ascii_"), [("info", "·", "-"), ("warning", "!", "!"), ("error", "✗", "x")])
def test_a_line_has_its_time_and_a_sign_for_its_weight(level, plain, ascii_):
    line = a_line(happened.Noted(fact=recorded_text("text")), level)
    assert plain_line(line, {}, zone=timezone.utc) == f"01:01:01 {plain} text"
    assert plain_line(line, {}, zone=timezone.utc, is_ascii=True) == f"01:01:01 {ascii_} text"


def test_a_problem_of_the_reader_is_a_line_too():
    assert line_text(a_line(fact("recording.events_missing", first=3, last=None)))


@pytest.mark.parametrize("t_wall", [1e300, -1e300])
def test_a_time_that_no_calendar_has_stops_nobody(t_wall):
    line = LogLine(seq=0, t_wall=t_wall, level="info", what=happened.Noted(fact=recorded_text("x")))
    assert plain_line(line, {}) == "--:--:-- · x"
