"""Stored baselines as a user meets them, on small projects whose benchmarks need no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.tiny_projects import DOUBLED, baseline_of, noted, outcomes, record_as_taking, verdicts


class TestStoredBaseline:
    def test_is_shown_compared_and_gated_against(self, project_with_baseline):
        project = project_with_baseline
        place = baseline_of(project)
        shown = project.run("baseline", "show")
        assert shown.returncode == 0
        assert f"{place.parent.name}  tiny" in shown.stdout
        details = json.loads(project.run("baseline", "show", "-s", "tiny", "--json").stdout)
        assert {name: noise["rounds"] for name, noise in details["noise"].items()} == {"tiny.sum": 4, "tiny.sort": 4}
        diff = project.run("baseline", "diff", "git:HEAD")
        assert (diff.returncode, diff.stdout.count("+0.00 %")) == (0, 2)
        loaded = subprocess.run(
            [sys.executable, "-m", "pyperf", "stats", str(place / "timings.json")], capture_output=True
        )
        assert loaded.returncode == 0
        project.replace("tiny_work.py", *DOUBLED)
        result = project.result("gate", PERFGUARD_ROUNDS="4")
        assert outcomes(result)["tiny.sum"] == "regressed", result["reasons"]
        assert result["exit_code"] == 1
        assert result["arms"]["baseline"]["text"].startswith("stored ")

    def test_of_the_very_same_code_passes_however_much_the_rounds_scatter(self, project_with_baseline):
        result = project_with_baseline.result("gate", PERFGUARD_ROUNDS="4", PERFGUARD_MAX_BLOCK_SD="0.000001")
        assert set(outcomes(result).values()) == {"same-code"}, result["reasons"]
        assert (result["exit_code"], result["verdict"]) == (0, "pass"), result["reasons"]

    def test_of_a_slower_day_makes_nothing_look_faster(self, project_with_baseline):
        project = project_with_baseline
        record_as_taking(baseline_of(project), 1.0)
        project.write("tiny_work.py", (project.path / "tiny_work.py").read_text() + "\n# another file, the same work\n")
        # One CPU as fast as another is not the question here: what was stored is wrong by a factor of thousands.
        result = project.result("gate", PERFGUARD_ROUNDS="4", PERFGUARD_MARGIN="0.5")
        assert noted(result, "stored.machine_moved")
        for verdict in verdicts(result).values():
            assert verdict["comparison"]["design"] == "paired"
            assert abs(verdict["comparison"]["estimate"]["log_ratio"]) < 1  # the stored numbers are 1000 times as large
        assert set(outcomes(result).values()) <= {"unchanged", "inconclusive"}, result["reasons"]

    def test_whose_commit_a_squash_has_replaced_is_paired_with_the_same_code(self, project_with_baseline):
        project = project_with_baseline
        record_as_taking(baseline_of(project), 1.0)
        measured = json.loads((baseline_of(project) / "info.json").read_text())["commit"]
        project.git("checkout", "-q", "--orphan", "squashed")
        squashed = project.commit("everything in one commit")
        project.git("branch", "-q", "-D", "main")
        project.git("reflog", "expire", "--expire=now", "--all")
        project.git("gc", "-q", "--prune=now")
        assert subprocess.run(["git", "cat-file", "-e", measured], cwd=project.path, capture_output=True).returncode
        project.write("tiny_work.py", (project.path / "tiny_work.py").read_text() + "\n# another file, the same work\n")
        result = project.result("gate", PERFGUARD_ROUNDS="2")
        assert not noted(result, "stored.cannot_pair")
        assert {verdict["comparison"]["design"] for verdict in verdicts(result).values()} == {"paired"}
        events = (project.latest_run() / "events.jsonl").read_text()
        assert squashed in events

    def test_whose_commit_is_gone_says_so_before_it_is_needed(self, project_with_baseline):
        file = baseline_of(project_with_baseline) / "info.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"commit": "0" * 40, "code_id": None}))
        result = project_with_baseline.result("gate", PERFGUARD_ROUNDS="2")
        assert noted(result, "stored.cannot_pair")
        (missing,) = noted(result, "pairing.commit_missing")
        assert missing["values"] == {"of": "baseline", "commit": "0" * 12}

    def test_holds_no_name_of_host_or_place(self, project_with_baseline):
        for file in baseline_of(project_with_baseline).iterdir():
            text = file.read_text()
            assert str(project_with_baseline.path) not in text
            assert '"hostname"' not in text

    def test_a_dirty_tree_is_not_recorded(self, project_with_baseline):
        project_with_baseline.write("unfinished.py", "")
        done = project_with_baseline.run("baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit")
        assert done.returncode == 2
        assert "uncommitted changes" in done.stderr

    def test_a_dry_run_stores_nothing(self, project):
        done = project.run(
            "baseline", "update", "--rounds", "4", "--spread", "0", "--allow-unfit", "-n", "-c", "tiny.sum"
        )
        assert done.returncode == 0, done.stderr
        assert "nothing was stored" in done.stderr
        assert not (project.path / "baselines").exists()

    def test_of_rounds_that_scatter_is_recorded_with_a_warning(self, project):
        arguments = ("--rounds", "4", "--spread", "0", "--allow-unfit", "-n", "-s", "tiny")
        done = project.run("baseline", "update", *arguments, PERFGUARD_MAX_BLOCK_SD="0.000001")
        assert done.returncode == 0, done.stderr
        lines = (project.latest_run() / "events.jsonl").read_text(encoding="utf-8").splitlines()
        notes = [event["fact"] for event in map(json.loads, lines) if event["event"] == "note"]
        (noisy,) = [note["values"] for note in notes if note["code"] == "baseline.noisy"]
        assert (noisy["noisy"], noisy["cases"]) == (2, 2)

    def test_a_corrupt_one_is_named_and_the_others_are_still_listed(self, project_with_baseline):
        project = project_with_baseline
        place = baseline_of(project)
        shutil.copytree(place, place.parent / "other")
        (place / "info.json").write_text("{ cut off")
        shown = project.run("baseline", "show")
        assert f"{place / 'info.json'} is corrupt" in shown.stdout
        assert "commit" in shown.stdout  # the copy is still listed
        assert "1 of 2 stored baselines cannot be read" in shown.stderr
        assert shown.returncode == 3
        gate = project.run("gate")
        assert gate.returncode == 3
        assert "is corrupt" in gate.stderr

    @pytest.mark.parametrize("file", ["timings.json", "noise.json", "fingerprint.json"])
    def test_a_missing_file_of_it_is_named(self, project_with_baseline, file):
        (baseline_of(project_with_baseline) / file).unlink()
        done = project_with_baseline.run("gate")
        assert done.returncode == 3
        assert f"{file} is missing" in done.stderr

    def test_of_another_machine_is_incomparable(self, project_with_baseline):
        project = project_with_baseline
        place = baseline_of(project)
        fingerprint = json.loads((place / "fingerprint.json").read_text())
        fingerprint["cpu"]["brand"] = "Another CPU @ 9 GHz"
        fingerprint["machine_id"] = "another-machine"
        fingerprint["cpu"]["microarchitecture"] = "another"
        (place / "fingerprint.json").write_text(json.dumps(fingerprint))
        result = project.result("gate", PERFGUARD_ROUNDS="2")
        assert set(outcomes(result).values()) == {"incomparable"}, result["reasons"]
        assert result["exit_code"] == 3

    def test_only_for_another_machine_is_none_for_this_one(self, project_with_baseline):
        place = baseline_of(project_with_baseline)
        place.parent.rename(place.parent.parent / "intel-other-1")
        done = project_with_baseline.run("gate", "--baseline", "stored")
        assert done.returncode == 3
        assert "baselines exist for intel-other-1" in done.stderr


def test_a_baseline_belongs_to_a_suite_and_not_to_a_pattern(project):
    done = project.run("baseline", "update", "-c", "tiny.sum")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a baseline is stored for a suite" in done.stderr
