from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from perfguard.errors import HostUnfitError, MeasurementError, StoreError
from perfguard.recordings import decode_event, encode_event
from perfguard.records.events import (
    EVENT_NAMES,
    AnalysesPlanned,
    ArmReady,
    ArmsCompared,
    BlockFinished,
    BlockStarted,
    CaseCalibrated,
    CaseFinished,
    CaseUntouched,
    ControlTimed,
    InterimAnalysis,
    Noted,
    OpsCompared,
    RunFinished,
    RunStarted,
    SampleTimed,
    StageStarted,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import fact
from perfguard.records.run import Arm, CaseFailed, Stage
from perfguard.records.steps.ops import (
    Attribution,
    ChangeClass,
    Culprit,
    OpCountChange,
    OpDelta,
    OpKey,
    StepBalance,
    StepPhase,
)
from perfguard.records.training import TrainingPlanned
from perfguard.runner.run_folder import RunFolder, read_events
from tests.changed_values import replace
from tests.made_trainings import CONFIG, OUTCOME, TRAINED_ON, WORKERS
from tests.made_trainings import epoch as training_epoch
from tests.made_trainings import use as training_use
from tests.task_records import FIRST, plan, speed, timed

MATMUL = OpKey(
    phase=StepPhase.BACKWARD,
    module="Net.head",
    op="aten::mm",
    shapes="[8,4] [4,2]",
    dtypes="f32 f32",
    layouts="contiguous contiguous",
)
MORE_REORDERS = OpCountChange(
    phase=StepPhase.BACKWARD, module="Net.*", rule="reorders", before=0, after=2, fact=fact("reorders.added", number=2)
)
ATTRIBUTION = Attribution(
    case_id="a",
    balance=StepBalance(
        baseline_s=1.0,
        candidate_s=1.25,
        delta_s=0.25,
        lower_s=0.125,
        upper_s=0.5,
        ops_s=0.25,
        python_s=0.0,
        idle_s=0.0,
        unexplained_s=0.0,
        overhead_ratio=0.1,
        unexplained_lower_s=-0.125,
        unexplained_upper_s=0.125,
    ),
    culprits=(
        Culprit(
            fact=fact("op.slower", ops=("mm",), changed_ratio=0.25),
            change=ChangeClass.SLOWER,
            phase=StepPhase.BACKWARD,
            delta_s=0.25,
            lower_s=0.125,
            upper_s=0.5,
            share=1.0,
            ops=(MATMUL,),
        ),
    ),
    deltas=(
        OpDelta(
            key=MATMUL,
            change=ChangeClass.SLOWER,
            baseline_s=1.0,
            candidate_s=1.25,
            delta_s=0.25,
            lower_s=0.125,
            upper_s=0.5,
            q=0.001,
            baseline_calls=2.0,
            candidate_calls=2.0,
        ),
    ),
    op_count_changes=(MORE_REORDERS,),
    processes=4,
    steps=16,
)

EVENTS = (
    RunStarted(
        run_id="r", schema=1, mode="paired", suite="pr", case_ids=("a", "b"), command=("perfguard", "run"), budget_s=9.5
    ),
    ArmReady(
        arm=Arm.BASELINE, text="git:HEAD", interpreter="/py", source_id="s", python="3.11", torch=None, import_s=0.5
    ),
    ArmsCompared(identical=True),
    CaseCalibrated(case_id="a", inner_loops=7, iteration_s=0.001),
    CaseUntouched(case_id="b", functions=12),
    BlockStarted(block=0, hash_seed=1, data_seed=2, case_ids=("b", "a")),
    SampleTimed(
        block=0,
        case_id="a",
        arm=Arm.CANDIDATE,
        index=2,
        warmup=False,
        value_s=0.1 + 0.2,
        cpu_s=0.25,
        minor_faults=3,
        involuntary_switches=1,
    ),
    ControlTimed(block=0, value_s=0.002),
    CaseFinished(block=0, case_id="a", baseline_digest=1.5, candidate_digest=None),
    CaseFailed(
        case_id="ü ✓",
        arm=Arm.CANDIDATE,
        missing=False,
        reason=fact("case.raised", error="line\nbreak"),
        detail="\x1b[31m\0",
    ),
    BlockFinished(block=0, started_at=1.5, duration_s=2.0, steal_ratio=None, involuntary_switches=0),
    AnalysesPlanned(blocks=24),
    InterimAnalysis(blocks=6, final=False, decided={"a": "regressed"}),
    StageStarted(stage=Stage.CONFIRMATION, case_ids=("a",)),
    StepsCounted(case_id="a", changes=(MORE_REORDERS,)),
    OpsCompared(attribution=ATTRIBUTION, file="ops-1.json"),
    VerdictReached(
        case_id="a",
        outcome="regressed",
        log_ratio=0.1,
        lower=0.05,
        upper=None,
        reasons=(fact("verdict.effect", log_ratio=0.1, blocks=5),),
    ),
    TrainingPlanned(config=CONFIG, workers=WORKERS),
    TRAINED_ON,
    training_epoch(1),
    training_use(1),
    OUTCOME,
    plan(FIRST),
    timed(FIRST, 0, speed(0.01)),
    Noted(fact=fact("a.note")),
    RunFinished(outcome="pass", exit_code=0, reasons=(fact("gate.passed", cases=1, faster=("a", "b")),)),
)


def test_there_is_an_example_of_every_event():
    assert {type(event) for event in EVENTS} == set(EVENT_NAMES.values())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_reads_back_from_its_line(event):
    line = encode_event(event, seq=3, t_wall=1.0, t_mono=2.0)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_event(line, source="here") == event


@pytest.fixture
def folder(tmp_path):
    made = RunFolder.create(tmp_path)
    yield made
    made.close()


def test_what_was_emitted_is_read_back_in_order_and_numbered(folder):
    for event in EVENTS:
        folder.emit(event)
    path = folder.path / "events.jsonl"
    assert tuple(read_events(path)) == EVENTS
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == list(range(len(EVENTS)))


def test_a_last_line_that_was_cut_off_is_left_out(folder):
    folder.emit(EVENTS[0])
    folder.emit(EVENTS[1])
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert list(read_events(path)) == [EVENTS[0]]


@pytest.mark.parametrize(
    "line", [b"garbage", b"[]", b'{"event":"unknown"}', b'{"event":"note"}', b'{"event":"note","fact":1}']
)
def test_a_whole_line_that_is_no_event_is_an_error_with_its_number(folder, line):
    folder.emit(EVENTS[0])
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(StoreError, match=r"events\.jsonl:2"):
        list(read_events(path))


def test_a_field_of_a_later_version_is_ignored(folder):
    folder.emit(EVENTS[-2])
    path = folder.path / "events.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}) + "\n")
    assert list(read_events(path)) == [EVENTS[-2]]


def test_a_missing_stream_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        list(read_events(tmp_path / "events.jsonl"))


def test_two_runs_never_share_a_folder_and_git_ignores_both(tmp_path):
    first, second = RunFolder.create(tmp_path), RunFolder.create(tmp_path)
    first.close()
    second.close()
    assert first.path != second.path
    assert (tmp_path / ".perfguard" / ".gitignore").read_text() == "*\n"
    assert {place.name for place in first.path.iterdir()} == {"raw", "logs", "events.jsonl"}


@pytest.mark.parametrize("project", ["file/project", "/proc/project"])
def test_a_place_that_cannot_be_written_is_refused_before_the_run(tmp_path, project):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(HostUnfitError, match=r"cannot be written .*; nothing was measured"):
        RunFolder.create(tmp_path / project)


def test_too_little_space_is_refused_with_what_is_needed(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 5 * 1024**2})()
    monkeypatch.setattr("perfguard.runner.run_folder.shutil.disk_usage", lambda _: usage)
    with pytest.raises(HostUnfitError, match="only 5 MiB are free .* a run needs 256 MiB"):
        RunFolder.create(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_ends_the_run_and_what_was_written_stays(tmp_path):
    """/dev/full answers every write as a full disk does."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "events.jsonl").symlink_to("/dev/full")
    folder = RunFolder(place)
    with pytest.raises(MeasurementError, match=r"No space left on device.*what was measured up to here is kept"):
        folder.emit(EVENTS[0])
    folder.close()


def test_a_document_that_cannot_be_written_is_named(folder):
    (folder.path / "plan.json").mkdir()
    with pytest.raises(MeasurementError, match=r"plan\.json cannot be written"):
        folder.write_json("plan.json", {})


def test_numbers_that_json_cannot_hold_become_null(folder):
    path = folder.write_json("x.json", {"nan": float("nan"), "inf": float("inf"), "arm": Arm.BASELINE})
    assert json.loads(path.read_text()) == {"arm": "baseline", "inf": None, "nan": None}


def test_half_a_write_is_noticed(folder, monkeypatch):
    """A write may take fewer bytes than it was given where the disk fills up in the middle of a line."""
    real = os.write
    monkeypatch.setattr("perfguard.runner.run_folder.os.write", lambda fd, data: real(fd, data[:10]))
    folder.emit(EVENTS[0])
    monkeypatch.undo()
    folder.emit(EVENTS[1])
    assert list(read_events(folder.path / "events.jsonl")) == [EVENTS[0], EVENTS[1]]


def test_unknown_ends_of_an_ops_interval_are_read_back_as_unknown():
    balance = replace(ATTRIBUTION.balance, lower_s=-math.inf, upper_s=math.inf, overhead_ratio=math.nan)
    event = OpsCompared(attribution=replace(ATTRIBUTION, balance=balance), file="ops-1.json")
    read = decode_event(encode_event(event, seq=0, t_wall=1.0, t_mono=2.0), source="here")
    assert isinstance(read, OpsCompared)
    assert math.isnan(read.attribution.balance.lower_s)
    assert math.isnan(read.attribution.balance.upper_s)
    assert read.attribution.culprits == ATTRIBUTION.culprits
