"""What explains a verdict, read back from events: op counts, attributions, advice."""

from __future__ import annotations

import json

import pytest

from perfguard.profile.advice.advise import advise
from perfguard.recordings import decode_event, encode_event
from perfguard.records.events import OpsCompared, StepsCounted
from perfguard.records.facts import Severity, recorded_text
from perfguard.records.run_data import RunData
from tests.changed_values import replace
from tests.finding_evidence import CASE, OPTIMIZER, change, comparison, evidence, op

REORDERS = (change("reorders", "reorders.added"),)
COPIES = (change("copies", "copies.added"),)
FINDINGS = advise(evidence(op("mul_", 20, calls=62, module="Adam", phase=OPTIMIZER, shapes="[64]")))
COMPARED = OpsCompared(attribution=comparison(), file="ops-1.json", findings=FINDINGS)


def test_op_counts_of_another_machine_stands_beside_that_of_the_arms():
    data = RunData.of(
        [
            StepsCounted(case_id=CASE, changes=REORDERS),
            StepsCounted(case_id=CASE, changes=COPIES, counted_on="intel-x-1"),
        ]
    )
    assert data.op_count_changes == {CASE: REORDERS}
    assert data.stored_op_count_changes == {CASE: COPIES}


def test_advice_is_kept_by_case_and_that_of_the_last_comparison_counts():
    assert RunData.of([COMPARED]).findings == {CASE: FINDINGS}
    assert RunData.of([COMPARED, replace(COMPARED, findings=())]).findings == {}


@pytest.mark.parametrize(
    "event", [COMPARED, StepsCounted(case_id=CASE, changes=COPIES, counted_on="intel-x-1")], ids=["ops", "census"]
)
def test_what_was_written_is_read_back(event):
    assert decode_event(encode_event(event, seq=0, t_wall=0.0, t_mono=0.0), source="events") == event


def test_advice_of_schema_1_is_read_with_its_texts():
    old = {
        "id": "layout-lost",
        "title": "channels_last is lost",
        "severity": "hint",
        "seen": ["3 of 53 convolutions"],
        "where": "in forward of Net",
        "ops": [],
        "share": None,
        "gain": {"text": "unknown", "source": ""},
        "trial": {"change": "keep it", "command": "perfguard compare"},
        "since_baseline": "",
    }
    line = json.loads(encode_event(COMPARED, seq=0, t_wall=0.0, t_mono=0.0))
    event = decode_event(json.dumps({**line, "findings": [old]}).encode(), source="events")
    (finding,) = event.findings
    assert (finding.code, finding.severity, finding.command) == (
        "advice.layout_lost",
        Severity.INFO,
        "perfguard compare",
    )
    assert finding.seen == (recorded_text("3 of 53 convolutions"),)
    assert finding.since_baseline == ()


def test_runs_of_earlier_versions_hold_no_advice():
    line = b'{"event":"steps_counted","seq":1,"t_mono":0.0,"t_wall":0.0,"case_id":"x","changes":[]}'
    event = decode_event(line, source="events")
    assert isinstance(event, StepsCounted)
    assert event.counted_on is None
