"""Series over the recorded runs of a project."""

from __future__ import annotations

import json
import os
import shutil

import pyperf
import pytest

from perfguard.config import load_config
from perfguard.host.probe import probe
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.store.baselines import CONTROL_KEY, BaselineStore
from perfguard.watch.past_runs import read_history
from tests.recorded_runs import CASE_IDS, DATA, FAILING, MACHINE, NEW, SAME, SLOWER, STARTED


@pytest.fixture
def project(tmp_path):
    (tmp_path / "perfguard.toml").write_text("")
    return tmp_path


@pytest.fixture
def stored_baseline(project):
    """Stores a baseline of this machine with a median for each case."""

    def store(medians_s):
        machine = probe()
        info = BaselineInfo(
            schema=BASELINE_SCHEMA, suite="quick", machine_id=machine.machine_id, stack_id=None,
            created_at="2026-01-01T00:00:00Z", commit=None, source_id="tree", perfguard="1", cpus=1,
            env_profile="stable", sample_s=0.02, samples=3, span_s=1.0, seed=1,
        )  # fmt: skip
        spread = {"between_round_sd_ratio": 0.01, "within_round_sd_ratio": 0.01}
        noise = {
            case: CaseNoise(rounds=1, median_s=value, inner_loops=1, **spread) for case, value in medians_s.items()
        }
        runs = {
            case: [pyperf.Run([value], metadata={"name": case, CONTROL_KEY: 0.002}, collect_metadata=False)]
            for case, value in medians_s.items()
        }
        baseline = StoredBaseline(info=info, fingerprint=machine, noise=noise, rounds={})
        return BaselineStore(project / "baselines").save(baseline, runs)

    return store


@pytest.fixture
def record(project):
    def put(name: str, run_id: str):
        folder = project / ".perfguard" / "runs" / run_id
        shutil.copytree(DATA / name, folder)
        return folder / "events.jsonl"

    return put


def read(project, case_ids=None):
    return read_history(load_config(project, {}, {}), case_ids)


def test_every_measured_case_of_every_run_is_a_point(project, record):
    record("rounds", "20260101T000000-aaaaaa")
    record("paired", "20260102T000000-bbbbbb")
    found = read(project)
    assert found.problems == {}
    assert {point.run_id for point in found.points} == {"20260101T000000-aaaaaa", "20260102T000000-bbbbbb"}
    measured = [point.case_id for point in found.points if point.run_id.endswith("bbbbbb")]
    assert set(measured) == set(CASE_IDS) - {FAILING, NEW}


def test_a_point_tells_what_was_measured_where_and_with_what_result(project, record):
    record("paired", "one")
    (point,) = read(project, {SLOWER}).points
    assert (point.machine_id, point.stack_id, point.source_id) == (MACHINE, "torch-2.8.0-abcdef", "tree-2222222222")
    assert (point.outcome, point.t_wall) == ("regressed", pytest.approx(STARTED, abs=0.1))
    assert point.median_s == pytest.approx(0.0437, rel=0.01)
    assert 0 < (point.spread_ratio or 0) < 0.01


def test_a_run_that_compared_nothing_has_no_outcome(project, record):
    record("rounds", "one")
    assert {point.outcome for point in read(project).points} == {None}


def test_a_run_that_was_slowed_on_purpose_is_left_out(project, record):
    path = record("paired", "one")
    slowed = b'"is_injected":true,"budget_s":'
    path.write_bytes(path.read_bytes().replace(b'"is_injected":false', b"", 1).replace(b'"budget_s":', slowed, 1))
    assert read(project).points == ()


def test_a_broken_recording_is_a_problem_and_the_others_are_shown(project, record):
    record("rounds", "good")
    record("rounds", "odd").write_bytes(b"garbage\n")
    found = read(project)
    assert {point.run_id for point in found.points} == {"good"}
    assert {run_id: problem.code for run_id, problem in found.problems.items()} == {"odd": "recording.no_start"}


def test_a_project_without_runs_has_an_empty_history(project):
    assert (read(project).points, read(project).problems) == ((), {})


def test_what_was_read_once_is_read_again_only_when_it_changed(project, record):
    path = record("rounds", "one")
    first, status = read(project), path.stat()
    path.write_bytes(b"x" * (status.st_size - 1) + b"\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read(project) == first
    os.utime(path, ns=(1, 1))
    assert (read(project).points, len(read(project).problems)) == ((), 1)


def test_a_removed_run_leaves_the_series(project, record):
    record("rounds", "one")
    path = record("rounds", "two")
    read(project)
    shutil.rmtree(path.parent)
    assert {point.run_id for point in read(project).points} == {"one"}


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1, "runs": 3}', '{"schema": 99, "runs": {}}'])
def test_a_damaged_memory_is_made_anew(project, record, content):
    record("rounds", "one")
    wanted = read(project)
    cache = project / ".perfguard" / "history.json"
    cache.write_text(content)
    assert read(project) == wanted
    assert json.loads(cache.read_text())["schema"] == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_read_all_the_same(project, record):
    record("rounds", "one")
    (project / ".perfguard").chmod(0o500)
    try:
        assert read(project).points
    finally:
        (project / ".perfguard").chmod(0o700)


def test_the_stored_baseline_of_this_machine_is_beside_the_points(project, record, stored_baseline):
    record("rounds", "one")
    stored_baseline({SAME: 0.00041, SLOWER: 0.04})
    assert read(project).baselines_s == {SAME: pytest.approx(0.00041), SLOWER: pytest.approx(0.04)}
    assert read(project, {SAME}).baselines_s == {SAME: pytest.approx(0.00041)}


def test_a_damaged_baseline_only_takes_its_line_away(project, record, stored_baseline):
    record("rounds", "one")
    place = stored_baseline({SAME: 0.00041})
    (place / "noise.json").write_text("{")
    found = read(project)
    assert (found.baselines_s, bool(found.points)) == ({}, True)


def test_kept_times_that_no_run_can_have_are_read_again(project, record):
    record("rounds", "20260102T030405-a1b2c3")
    right = read_history(load_config(project, {}, {}))
    cache = project / ".perfguard" / "history.json"
    kept = json.loads(cache.read_text())
    for run in kept["runs"].values():
        for point in run["points"]:
            point["median_s"] = 0.0
    cache.write_text(json.dumps(kept))
    assert read_history(load_config(project, {}, {})).points == right.points
