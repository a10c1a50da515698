"""Events as lines, for logs and for people who hear them read."""

from __future__ import annotations

from datetime import timezone

import pytest

from perfguard.records import events as happened
from perfguard.records.facts import Severity, fact, recorded_text
from perfguard.records.run import Arm, Stage
from perfguard.report.event_lines import log_line, plain_line
from perfguard.watch.sources.event_tail import EventTail
from perfguard.watch.view.run_view import LogLine
from tests.recorded_runs import DATA

VERDICT = {"case_id": "a", "log_ratio": 0.05, "lower": 0.04, "upper": 0.06, "reasons": (recorded_text("5 % slower"),)}


def said(event: happened.Event) -> tuple[str, str]:
    line = log_line(event, seq=1, t_wall=2.0)
    assert line is not None
    assert (line.seq, line.t_wall) == (1, 2.0)
    return line.level, line.text


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (
            happened.RunStarted(
                run_id="r1", schema=1, mode="paired", suite="pr", case_ids=("a", "b"), command=(), budget_s=90.0
            ),
            "info",
            "run r1: 2 cases of pr, two arms in interleaved blocks, at most 1 min 30 s",
        ),
        (happened.CaseCalibrated(case_id="a", inner_loops=1, iteration_s=0.02), "info",
         "a: 20.00 ms an iteration, 1 iteration a slice"),
        (happened.BlockStarted(block=2, hash_seed=1, data_seed=1, case_ids=("a",)), "info",
         "block 3 begins with 1 case"),
        (
            happened.BlockFinished(
                block=2, started_at=0.0, duration_s=12.2, steal_ratio=0.001, involuntary_switches=0
            ),
            "info",
            "block 3 took 12 s, 0.10 % stolen",
        ),
        (
            happened.CaseFailed(
                case_id="a", arm=Arm.CANDIDATE, missing=False, reason=fact("case.raised", error="boom"), detail=""
            ),
            "error",
            "a failed in the candidate: boom",
        ),
        (happened.Noted(fact=fact("canary.missing", severity=Severity.NOTABLE, error="x")), "warning",
         "no control workload: x"),
        (happened.LookTaken(blocks=5, final=False, decided={"a": "regressed", "b": "unchanged"}), "error",
         "answered after 5 blocks: a regressed, b unchanged"),
        (happened.LookTaken(blocks=9, final=True, decided={}), "info", "last look, after 9 blocks"),
        (happened.StageStarted(stage=Stage.CONFIRMATION, case_ids=("a",)), "info",
         "confirming flags with relocated arms: 1 case"),
        (happened.VerdictReached(outcome="regressed", **VERDICT), "error",
         "a regressed: 5 % slower"),
        (happened.VerdictReached(outcome="unchanged", **VERDICT), "info",
         "a unchanged: 5 % slower"),
        (happened.RunFinished(outcome="inconclusive", exit_code=4, reasons=(recorded_text("too noisy"),)), "warning",
         "run ended, inconclusive, exit code 4: too noisy"),
    ],
)  # fmt: skip
def test_an_event_is_one_sentence_with_its_weight(event, level, text):
    assert said(event) == (level, text)


def test_what_comes_many_times_a_second_is_no_line():
    assert log_line(happened.CanaryTimed(block=0, value_s=1.0), seq=0, t_wall=0.0) is None
    assert log_line(happened.LookTaken(blocks=5, final=False, decided={}), seq=0, t_wall=0.0) is None


@pytest.mark.parametrize("name", ["paired", "rounds"])
def test_a_whole_run_is_told_in_lines_that_move_no_terminal(name):
    seen = EventTail(DATA / name / "events.jsonl").poll().events
    lines = [line for one in seen if (line := log_line(one.event, seq=one.seq, t_wall=one.t_wall))]
    assert lines[-1].text.startswith("run ended, ")
    assert all(line.text.isprintable() for line in lines)
    assert len(lines) < len(seen) / 4


def test_control_characters_of_a_benchmark_become_spaces():
    failed = happened.CaseFailed(
        case_id="a", arm=Arm.BASELINE, missing=False, reason=fact("case.raised", error="x\x1b[2J\ny"), detail=""
    )
    assert said(failed)[1] == "a failed in the baseline: x [2J y"


@pytest.mark.parametrize(("level", "plain", "ascii_"), [("info", "·", "-"), ("warning", "!", "!"), ("error", "✗", "x")])
def test_a_line_has_its_time_and_a_sign_for_its_weight(level, plain, ascii_):
    line = LogLine(seq=0, t_wall=3661.0, level=level, text="text")
    assert plain_line(line, zone=timezone.utc) == f"01:01:01 {plain} text"
    assert plain_line(line, zone=timezone.utc, is_ascii=True) == f"01:01:01 {ascii_} text"


@pytest.mark.parametrize("t_wall", [1e300, -1e300])
def test_a_time_that_no_calendar_has_stops_nobody(t_wall):
    assert plain_line(LogLine(seq=0, t_wall=t_wall, level="info", text="x")) == "--:--:-- · x"
