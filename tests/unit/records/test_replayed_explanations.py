"""What explains a verdict, read back from events: censuses, attributions, advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfguard.codec import decode_event, encode_event
from perfguard.profile.advice.advise import advise
from perfguard.records.events import OpsCompared, StepsCounted
from perfguard.records.run_data import RunData
from tests.finding_evidence import CASE, OPTIMIZER, change, comparison, evidence, op

REORDERS = (change("reorders", "2 reorders more"),)
COPIES = (change("copies", "1 copy more"),)
FINDINGS = advise(evidence(op("mul_", 20, calls=62, module="Adam", phase=OPTIMIZER, shapes="[64]")))
COMPARED = OpsCompared(attribution=comparison(), file="ops-1.json", findings=FINDINGS)


def test_a_census_of_another_machine_stands_beside_that_of_the_arms():
    data = RunData.of(
        [
            StepsCounted(case_id=CASE, changes=REORDERS),
            StepsCounted(case_id=CASE, changes=COPIES, counted_on="intel-x-1"),
        ]
    )
    assert data.census_changes == {CASE: REORDERS}
    assert data.stored_census_changes == {CASE: COPIES}


def test_advice_is_kept_by_case_and_that_of_the_last_comparison_counts():
    assert RunData.of([COMPARED]).findings == {CASE: FINDINGS}
    assert RunData.of([COMPARED, replace(COMPARED, findings=())]).findings == {}


@pytest.mark.parametrize(
    "event", [COMPARED, StepsCounted(case_id=CASE, changes=COPIES, counted_on="intel-x-1")], ids=["ops", "census"]
)
def test_what_was_written_is_read_back(event):
    assert decode_event(encode_event(event, seq=0, t_wall=0.0, t_mono=0.0), source="events") == event


def test_runs_of_earlier_versions_hold_no_advice():
    line = b'{"event":"steps_counted","seq":1,"t_mono":0.0,"t_wall":0.0,"case_id":"x","changes":[]}'
    event = decode_event(line, source="events")
    assert isinstance(event, StepsCounted)
    assert event.counted_on is None
