from __future__ import annotations

import pytest

from perfguard.recordings import decode_event
from perfguard.records.events import (
    ArmReady,
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    CaseFinished,
    SampleTimed,
    StageStarted,
)
from perfguard.records.run import Arm, Signal, Stage
from perfguard.records.run_data import RunData
from tests.changed_values import replace

SLICE = SampleTimed(
    block=0,
    case_id="x",
    arm=Arm.BASELINE,
    index=0,
    warmup=False,
    value_s=0.001,
    cpu_s=0.002,
    minor_faults=30,
    involuntary_switches=2,
    iterations=10,
    voluntary_switches=8,
    peak_memory_bytes=4096,
    energy_j=0.5,
    instructions=7e6,
)
STARTED = BlockStarted(block=0, hash_seed=1, data_seed=1, case_ids=("x",))
FINISHED = CaseFinished(block=0, case_id="x", baseline_digest=1.0, candidate_digest=1.0)
ENDED = BlockFinished(block=0, started_at=0.0, duration_s=1.0, steal_ratio=None, involuntary_switches=0)
BOTH = (SLICE, replace(SLICE, arm=Arm.CANDIDATE, cpu_s=0.004))


def replayed(*events):
    return {entry.signal: entry for entry in RunData.of(events).signals()}


def test_each_signal_is_told_for_one_iteration():
    found = replayed(STARTED, *BOTH, FINISHED, ENDED)
    assert {signal: entry.baseline for signal, entry in found.items()} == {
        Signal.CPU: (0.002,),
        Signal.MEMORY: (4096,),
        Signal.FAULTS: (3.0,),
        Signal.SWITCHES: (1.0,),
        Signal.ENERGY: (0.5,),
        Signal.INSTRUCTIONS: (7e6,),
    }
    assert found[Signal.CPU].candidate == (0.004,)


def test_a_benchmarks_own_signals_stand_after_the_workers():
    own = [replace(each, own={"epochs": 7.0, "idle_share": 0.25}) for each in BOTH]
    found = replayed(STARTED, own[0], replace(own[1], own={"epochs": 8.0}), FINISHED, ENDED)
    assert list(found)[-2:] == ["epochs", "idle_share"]
    assert (found["epochs"].baseline, found["epochs"].candidate) == ((7.0,), (8.0,))
    assert (found["idle_share"].baseline, found["idle_share"].candidate) == ((0.25,), (None,))


def test_warm_ups_open_cases_unfinished_blocks_and_other_stages_do_not_count():
    assert (
        replayed(STARTED, *(replace(timed, warmup=True) for timed in BOTH), FINISHED, ENDED)[Signal.CPU].baseline == ()
    )
    assert replayed(STARTED, *BOTH, ENDED) == {}
    assert replayed(STARTED, *BOTH, FINISHED) == {}
    confirming = StageStarted(stage=Stage.CONFIRMATION, case_ids=("x",))
    assert replayed(confirming, STARTED, *BOTH, FINISHED, ENDED) == {}


def test_a_recording_without_the_new_fields_is_read_with_its_loops():
    line = (
        b'{"event":"sample","seq":1,"t_wall":1,"t_mono":1,"block":0,"case_id":"x","arm":"baseline","index":0,'
        b'"warmup":false,"value_s":0.001,"cpu_s":0.002,"minor_faults":30,"involuntary_switches":2}'
    )
    old = decode_event(line, source="a recording")
    loops = CaseCalibrated(case_id="x", inner_loops=15, iteration_s=0.001)
    found = replayed(loops, STARTED, old, replace(old, arm=Arm.CANDIDATE), FINISHED, ENDED)
    assert found[Signal.FAULTS].baseline == (2.0,)
    assert found[Signal.SWITCHES].baseline == (None,)
    assert found[Signal.ENERGY].baseline == (None,)
    unknown = replayed(STARTED, old, replace(old, arm=Arm.CANDIDATE), FINISHED, ENDED)
    assert unknown[Signal.FAULTS].baseline == (None,)


def test_what_the_workers_lack_is_known_by_arm():
    ready = ArmReady(
        arm=Arm.CANDIDATE,
        text="dir:.",
        interpreter="python",
        source_id="s",
        python="3.12.0",
        torch=None,
        import_s=0.0,
        missing_signals={"energy": "no counter"},
    )
    assert RunData.of([ready]).missing_signals == {Arm.CANDIDATE: {"energy": "no counter"}}


def test_the_wait_for_a_cpu_is_a_part_of_the_time_of_all_timed_samples():
    first, second = (replace(timed, waited_s=waited_s) for timed, waited_s in zip(BOTH, (0.004, 0.0), strict=True))
    warm_up = replace(first, warmup=True, waited_s=1.0)
    assert RunData.of((STARTED, warm_up, first, second)).waited_ratio() == pytest.approx(0.2)
    # A recording that tells nothing of some samples tells of the others; one that tells nothing at all says so.
    assert RunData.of((STARTED, first, BOTH[1])).waited_ratio() == pytest.approx(0.4)
    assert RunData.of((STARTED, *BOTH)).waited_ratio() is None
