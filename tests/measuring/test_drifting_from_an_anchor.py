"""Many small slips: `baseline anchor`, and gates that tell the drift since then."""

from __future__ import annotations

import json

import pytest

from tests.tiny_projects import UPDATE, baseline_of, facts, noted, outcomes, record_as_taking

LIMITS = {"PERFGUARD_MARGIN": "0.15", "PERFGUARD_ANCHOR_MARGIN": "0.05", "PERFGUARD_ROUNDS": "5"}
"""No single step is worth a flag, the way since the anchor is."""


def drift(project, step_ratio):
    """Three commits, each slower than the one before by a step; the result stays the same."""
    work = (project.path / "tiny_work.py").read_text()
    for number in (1, 2, 3):
        extra = round(20_000 * ((1 + step_ratio) ** number - 1))
        slower = f"return [sum(range(n)) for n in ({extra}, LENGTH)][1]"
        project.write("tiny_work.py", work.replace("return sum(range(LENGTH))", slower))
        project.commit(f"{extra} numbers more")


class TestAnchor:
    def test_is_frozen_shown_kept_replaced_and_removed(self, project_with_baseline):
        project, place = project_with_baseline, baseline_of(project_with_baseline)
        done = project.run("baseline", "anchor")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("anchor of 20")
        files = {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()}
        assert {file.name: file.read_bytes() for file in (place / "anchor").iterdir()} == files
        assert "anchor of 20" in project.run("baseline", "show").stdout
        assert "anchor of 20" in project.run("baseline", "show", "-s", "tiny").stdout
        details = json.loads(project.run("baseline", "show", "-s", "tiny", "--json").stdout)
        assert details["anchor"]["commit"] == details["info"]["commit"]

        refused = project.run("baseline", "anchor")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "use --replace" in refused.stderr
        assert project.run("baseline", "anchor", "--replace", "--from", "git:HEAD").returncode == 0
        assert project.run("baseline", "anchor", "--remove").returncode == 0
        assert not (place / "anchor").exists()
        assert json.loads(project.run("baseline", "show", "-s", "tiny", "--json").stdout)["anchor"] is None

    def test_is_left_alone_by_an_update(self, project_with_baseline):
        project, place = project_with_baseline, baseline_of(project_with_baseline)
        assert project.run("baseline", "anchor").returncode == 0
        frozen = {file.name: file.read_bytes() for file in (place / "anchor").iterdir()}
        project.commit("anchor")
        done = project.run(*UPDATE)
        assert done.returncode == 0, done.stderr
        assert (place / "timings.json").read_bytes() != frozen["timings.json"]
        assert {file.name: file.read_bytes() for file in (place / "anchor").iterdir()} == frozen

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (("baseline", "anchor"), 3, "no baseline of suite 'tiny' is stored for this machine"),
            (("baseline", "anchor", "--from", "git:nowhere"), 2, "git knows no revision 'nowhere'"),
            (("baseline", "anchor", "--from", "git:HEAD"), 3, "was this machine's baseline committed there?"),
            (("baseline", "anchor", "--remove"), 3, "there is no anchor at"),
            (("baseline", "anchor", "--remove", "--replace"), 2, "--remove stands alone"),
            (("gate", "--anchor"), 2, "run `perfguard baseline anchor`, or name a revision"),
            (("compare", "--anchor", "--baseline", "git:HEAD"), 2, "--anchor chooses the baseline itself"),
            (("gate", "--anchor", "--baseline", "git:HEAD"), 2, "--anchor chooses the baseline itself"),
        ],
    )
    def test_what_cannot_be_done_is_said_in_one_sentence(self, project, arguments, code, said):
        done = project.run(*arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("value", ["git:", "HEAD+env:A=1", "dir:.", "nowhere"])
    def test_a_configured_one_that_is_no_revision_is_refused(self, project, value):
        done = project.run("gate", "--anchor", PERFGUARD_ANCHOR=value)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr

    def test_a_corrupt_one_ends_a_gate_before_anything_is_measured(self, project_with_baseline):
        project, place = project_with_baseline, baseline_of(project_with_baseline)
        assert project.run("baseline", "anchor").returncode == 0
        (place / "anchor" / "noise.json").write_text("{ cut off")
        done = project.run("gate")
        assert (done.returncode, done.stdout) == (3, "")
        assert "noise.json is corrupt" in done.stderr
        assert "corrupt" in project.run("baseline", "show").stdout
        assert not (project.path / ".perfguard" / "runs").exists()


def test_small_steps_pass_one_by_one_and_are_red_against_the_anchor(project):
    first = project.git("rev-parse", "HEAD")
    drift(project, 0.3)  # steps that a busy host does not hide; each lies far below the margin of a gate
    limits = {**LIMITS, "PERFGUARD_MARGIN": "0.9"}
    step = project.result("compare", "--baseline", "git:HEAD~1", "-c", "tiny.sum", **limits)
    assert outcomes(step)["tiny.sum"] != "regressed", step["reasons"]
    result = project.result("gate", "--anchor", "-c", "tiny.sum", PERFGUARD_ANCHOR=f"git:{first}", **limits)
    assert outcomes(result) == {"tiny.sum": "regressed"}, result["reasons"]
    assert result["gate"]["verdicts"][0]["comparison"]["margin_ratio"] == 0.05
    shown = project.result("show", **limits)
    assert outcomes(shown) == {"tiny.sum": "regressed"}
    assert shown["gate"]["policy"] == result["gate"]["policy"]
    assert noted(result, "drift.paired")


def test_a_gate_against_a_stored_baseline_pairs_what_has_drifted_with_the_anchors_commit(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    record_as_taking(place / "anchor", 1e-12)
    project.commit("anchor")
    drift(project, 0.5)  # steps that a busy host does not hide; the margin is wider still
    assert project.run(*UPDATE, "--allow-different").returncode == 0
    project.commit("baseline of the slower code")
    arguments = ("gate", "--baseline", "stored", "--budget", "60", "--max-blocks", "20")
    result = project.result(*arguments, **{**LIMITS, "PERFGUARD_MARGIN": "0.9"})
    drifts = noted(result, "drift.measured")
    assert {note["subject"]["case_id"] for note in drifts} == {"tiny.sum", "tiny.sort"}
    assert any(note["values"]["is_beyond"] for note in drifts)
    assert outcomes(result)["tiny.sum"] == "regressed", result["reasons"]
    (verdict,) = [v for v in result["gate"]["verdicts"] if v["case_id"] == "tiny.sum"]
    (since,) = facts(verdict, "drift.since_anchor")
    assert since["values"]["log_ratio"] == verdict["comparison"]["estimate"]["log_ratio"]
    assert verdict["comparison"]["design"] == "paired"
    assert verdict["comparison"]["margin_ratio"] == 0.05
    assert verdict["comparison"]["estimate"]["log_ratio"] < 3.0  # from pairs, not from the numbers of another day
    assert outcomes(result)["tiny.sort"] != "regressed"
    assert "tiny.sort" in [note["subject"]["case_id"] for note in noted(result, "drift.not_confirmed")]
    assert result["exit_code"] == 1
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_drift_that_only_the_numbers_of_another_day_show_is_not_red(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    record_as_taking(place / "anchor", 1e-12)
    result = project.result("gate", "--baseline", "stored", **LIMITS)
    assert any(note["values"]["is_beyond"] for note in noted(result, "drift.measured"))
    assert {"of": "anchor"} in [note["values"] for note in noted(result, "arms.same_code_as_stored")]
    assert "regressed" not in outcomes(result).values()


def test_drift_whose_commit_is_not_in_the_clone_is_noted(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    record_as_taking(place / "anchor", 1e-12)
    file = place / "anchor" / "info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"commit": "0" * 40, "code_id": None}))
    result = project.result("gate", "--baseline", "stored", **LIMITS)
    assert noted(result, "drift.not_paired")
    assert noted(result, "pairing.commit_missing")[0]["values"] == {"of": "anchor", "commit": "0" * 12}
    assert "regressed" not in outcomes(result).values()


def test_an_anchor_of_other_software_is_said_and_not_compared(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    file = place / "anchor" / "info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"stack_id": "another"}))
    result = project.result("gate", "--baseline", "stored", PERFGUARD_ROUNDS="2")
    assert noted(result, "host.other_stack")[0]["values"]["then"] == "another"
    assert not noted(result, "drift.measured")


def test_where_the_state_of_the_machine_has_changed_it_is_said_that_no_drift_is_told(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    fingerprint = json.loads((place / "fingerprint.json").read_text())
    fingerprint["state"]["kernel"] = "another"
    (place / "fingerprint.json").write_text(json.dumps(fingerprint))
    result = project.result("gate", "--max-blocks", "1", "-c", "tiny.sort")
    assert not any(
        note["code"].startswith("drift.") for note in result["notes"]
    )  # a selection of cases has no stored baseline
    result = project.result("gate", "--max-blocks", "1")
    assert noted(result, "baseline.other_state")
    assert noted(result, "drift.not_measured")


def test_an_anchor_of_another_machine_is_said_and_not_compared(project_with_baseline):
    project, place = project_with_baseline, baseline_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    fingerprint = json.loads((place / "anchor" / "fingerprint.json").read_text())
    fingerprint["cpu"]["brand"] = "Another CPU @ 9 GHz"
    fingerprint["machine_id"] = "another-machine"
    fingerprint["cpu"]["microarchitecture"] = "another"
    (place / "anchor" / "fingerprint.json").write_text(json.dumps(fingerprint))
    result = project.result("gate", "--baseline", "stored", PERFGUARD_ROUNDS="2")
    assert noted(result, "drift.not_compared")
