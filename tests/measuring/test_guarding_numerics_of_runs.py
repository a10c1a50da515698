"""What a gate says where the candidate is not slower but computes something else; no torch."""

from __future__ import annotations

import json

import pytest

from tests.tiny_projects import UPDATE, facts, noted, verdicts


def test_a_candidate_that_skips_half_the_work_is_different_and_not_faster(project):
    project.replace("tiny_work.py", "LENGTH = 20_000", "LENGTH = 10_000")
    result = project.result("compare", "--baseline", "git:HEAD", "--candidate", "dir:.", "--no-progress")
    found = verdicts(result)
    assert found["tiny.sum"]["outcome"] == "different"
    (difference,) = facts(found["tiny.sum"], "result.different")
    assert (difference["values"]["baseline"], difference["values"]["candidate"]) == (
        sum(range(20_000)),
        sum(range(10_000)),
    )
    assert not facts(found["tiny.sort"], "result.different")
    shown = project.result("show")
    assert verdicts(shown)["tiny.sum"]["outcome"] == "different"


def test_against_a_stored_baseline_another_result_is_told(project_with_baseline):
    project = project_with_baseline
    project.replace("tiny_work.py", "LENGTH = 20_000", "LENGTH = 19_900")
    found = verdicts(project.result("gate", "--no-progress"))
    assert found["tiny.sum"]["outcome"] in {"different", "regressed"}
    (difference,) = facts(found["tiny.sum"], "result.different")
    assert (difference["values"]["baseline"], difference["values"]["candidate"]) == (
        sum(range(20_000)),
        sum(range(19_900)),
    )
    assert difference["values"]["tolerance_percent"] == pytest.approx(0.1)
    assert not facts(found["tiny.sort"], "result.different")


def test_a_baseline_without_numbers_is_compared_by_times_and_says_so(project_with_baseline):
    project = project_with_baseline
    (timings,) = project.path.glob("baselines/*/tiny/timings.json")
    document = json.loads(timings.read_text())
    places = [document["metadata"]] if "metadata" in document else []
    for benchmark in document["benchmarks"]:
        places += [benchmark.get("metadata", {}), *(run.get("metadata", {}) for run in benchmark["runs"])]
    removed = [place.pop(key) for place in places for key in list(place) if key.startswith("perfguard_check_")]
    assert removed
    timings.write_text(json.dumps(document))
    result = project.result("gate", "--no-progress")
    assert len(noted(result, "result.unchecked")[0]["values"]["case_ids"]) == 2
    assert not any(facts(verdict, "result.different") for verdict in verdicts(result).values())


def test_a_baseline_is_not_replaced_by_another_computation_unless_that_is_meant(project_with_baseline):
    project = project_with_baseline
    project.replace("tiny_work.py", "LENGTH = 20_000", "LENGTH = 19_900")
    project.commit("skip work")
    refused = project.run(*UPDATE)
    assert refused.returncode == 3
    assert "tiny.sum computes other results than the stored baseline" in refused.stderr
    assert "use --allow-different" in refused.stderr
    assert project.git("status", "--porcelain", "baselines") == ""
    accepted = project.run(*UPDATE, "--allow-different")
    assert accepted.returncode == 0, accepted.stderr
    assert project.git("status", "--porcelain", "baselines") != ""
