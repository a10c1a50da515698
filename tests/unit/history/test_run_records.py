"""What the history keeps of a run, and whose it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from perfguard.config import load_config
from perfguard.history.project_names import project_name
from perfguard.history.run_records import content_hash, is_of_interest, record_of, samples_of
from perfguard.records.events import BlockFinished
from perfguard.records.plan import FOR_BISECTION, FOR_CALIBRATION, FOR_TRIALS
from perfguard.records.run_data import RunData
from perfguard.runner.run_folder import read_events
from tests.changed_values import replace
from tests.recorded_runs import DATA, SLOWER


def data_of(name, **changes):
    data = RunData.of(read_events(DATA / name / "events.jsonl"))
    for key, value in changes.items():
        force_setattr(data.start, key, value)
    return data


def record(data, **fields):
    return record_of(data, **{"project": "p", "run_id": "one", "started_at": 1.0, "events_bytes": 9, **fields})


def test_the_record_of_a_gate_has_effects_and_its_samples_are_beside_it():
    data = data_of("paired")
    found = record(data)
    case = next(case for case in found.cases if case.case_id == SLOWER)
    assert (case.outcome, found.mode, found.outcome) == ("regressed", "paired", data.end.outcome)
    assert case.lower < case.log_ratio < case.upper
    assert found.baseline.source_id != found.candidate.source_id
    samples = samples_of(data)[SLOWER]
    assert len(samples.candidate_s) == len(samples.baseline_s) == case.blocks
    assert [case.case_id for case in found.cases] == sorted(case.case_id for case in found.cases)


def test_the_median_of_a_gated_case_is_that_of_its_verdict_and_of_its_blocks_where_an_old_recording_has_none():
    data = data_of("paired")
    verdict = data.verdicts[SLOWER]

    def median_s(judged_s):
        data.verdicts[SLOWER] = replace(verdict, candidate_s=judged_s)
        return next(case.median_s for case in record(data).cases if case.case_id == SLOWER)

    assert median_s(0.5) == 0.5
    assert median_s(None) == verdict.candidate_s


def test_a_disturbed_block_is_in_the_samples_and_not_in_the_median():
    events = tuple(read_events(DATA / "paired" / "events.jsonl"))
    quiet = record(RunData.of(events))
    stolen = [replace(e, steal_ratio=0.9) if isinstance(e, BlockFinished) and e.block == 0 else e for e in events]
    disturbed, samples = (made(RunData.of(stolen)) for made in (record, samples_of))
    left_out = [before.blocks - after.blocks for before, after in zip(quiet.cases, disturbed.cases, strict=True)]
    assert left_out == [1] * len(quiet.cases)
    assert {case.case_id: len(samples[case.case_id].candidate_s) for case in quiet.cases} == {
        case.case_id: case.blocks for case in quiet.cases
    }


@pytest.mark.parametrize("gate", [FOR_CALIBRATION, FOR_BISECTION, FOR_TRIALS])
def test_gates_that_search_leave_no_values(gate):
    data = data_of("paired", gate=gate)
    assert not is_of_interest(data)
    assert record(data).cases == ()


def test_a_recording_without_a_start_is_a_record_without_cases():
    found = record(RunData())
    assert (found.mode, found.machine_id, found.cases, found.baseline) == ("", None, (), None)


def test_equal_runs_have_equal_hashes_and_others_have_not():
    assert content_hash(record(data_of("paired"))) == content_hash(record(data_of("paired")))
    assert content_hash(record(data_of("paired"))) != content_hash(record(data_of("paired"), events_bytes=10))


def test_what_is_no_text_is_escaped():
    found = record(data_of("paired"), run_id="caf\udce9\0")
    assert found.run_id == "caf\\udce9 "


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://github.com/owner/name.git", "owner/name"),
        ("https://user:secret@example.org/group/owner/name/", "owner/name"),
        ("git@github.com:owner/name.git", "owner/name"),
        ("ssh://git@example.org:2222/owner/name", "owner/name"),
        ("/srv/repositories/name.git", None),
        ("", None),
    ],
)
def test_a_project_is_called_as_its_remote_and_its_folder_there(tmp_path, monkeypatch, remote, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / "checkout"
    (place / "sub").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", place], check=True)
    if remote:
        subprocess.run(["git", "-C", place, "remote", "add", "origin", remote], check=True)
    for folder, expected in ((place, name or "~/checkout"), (place / "sub", f"{name or '~/checkout'}/sub")):
        (folder / "perfguard.toml").write_text("")
        assert project_name(load_config(folder, {}, {})) == expected
    (place / "perfguard.toml").write_text('project = "mine"')
    assert project_name(load_config(place, {}, {})) == "mine"


def test_projects_of_one_folder_name_have_histories_of_their_own_and_worktrees_have_none(project, tmp_path):
    place, linked = Path(project.path), tmp_path / "linked"
    subprocess.run(["git", "-C", place, "worktree", "add", "-q", "--detach", linked], check=True)
    names = [project_name(load_config(folder, {}, {})) for folder in (place, linked)]
    assert names == [str(place.resolve())] * 2
    outside = tmp_path / "elsewhere" / place.name
    outside.mkdir(parents=True)
    assert project_name(load_config(outside, {}, {})) == str(outside.resolve())
