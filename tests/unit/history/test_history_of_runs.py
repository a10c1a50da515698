"""Series over the recorded runs of a project."""

from __future__ import annotations

import fcntl
import shutil

import pyperf
import pytest

from perfguard.config import load_config
from perfguard.history.project_names import project_name
from perfguard.history.reading import read_history
from perfguard.host.probe import probe
from perfguard.records.record import BASELINE_SCHEMA, BaselineInfo, CaseNoise, StoredBaseline
from perfguard.store.baselines import CONTROL_KEY, BaselineStore
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


def test_what_was_read_once_is_read_again_only_when_it_has_grown(project, record):
    path = record("rounds", "one")
    first = read(project)
    content = path.read_bytes()
    path.write_bytes(b"x" * len(content))
    assert read(project) == first
    path.write_bytes(content[: len(content) // 2])
    again = read(project)
    assert 0 < len(again.points) <= len(first.points)
    path.write_bytes(content + b"x\n")
    assert (read(project).points, len(read(project).problems)) == (first.points, 1)


def test_a_removed_run_stays_in_the_series(project, record):
    record("rounds", "one")
    path = record("rounds", "two")
    before = read(project)
    shutil.rmtree(path.parent)
    assert read(project).points == before.points
    assert {point.run_id for point in before.points} == {"one", "two"}


def test_nothing_is_kept_where_runs_are_not_to_be_recorded(project, record):
    path = record("rounds", "one")
    (project / "perfguard.toml").write_text('database = "off"')
    assert read(project).points
    shutil.rmtree(path.parent)
    assert read(project).points == ()


def test_a_run_that_goes_on_is_left_for_later(project, record):
    path = record("rounds", "one")
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert read(project).points == ()
    assert read(project).points


def test_projects_on_one_machine_are_apart(project, record, tmp_path_factory):
    record("rounds", "one")
    assert read(project).points
    other = tmp_path_factory.mktemp("other")
    (other / "perfguard.toml").write_text("")
    assert read(other).points == ()
    (other / "perfguard.toml").write_text(f'project = "{project_name(load_config(project, {}, {}))}"')
    assert read(other).points == read(project).points


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


def test_a_recording_with_what_is_no_text_is_recorded_like_any_other(project, record):
    path = record("rounds", "one")
    path.write_bytes(path.read_bytes().replace(b'"suite":"', b'"suite":"\\u0000', 1) + b'{"event":"\\ud800"}\n')
    machine = path.with_name("fingerprint.json")
    if machine.exists():
        machine.write_bytes(machine.read_bytes().replace(b'"brand": "', b'"brand": "\\ud800', 1))
    found = read(project)
    assert (bool(found.points), list(found.problems)) == (True, ["one"])
    assert read(project) == found
