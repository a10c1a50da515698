"""Many small slips: `baseline anchor`, and gates that tell the drift since then."""

from __future__ import annotations

import json
import shutil

import pytest

STEPS = (21_200, 22_472, 23_820)
"""Lengths of the sum after each of three commits: 6 % more work each, 19 % in all."""

LIMITS = {"PERFGUARD_MARGIN": "0.15", "PERFGUARD_ANCHOR_MARGIN": "0.05", "PERFGUARD_ROUNDS": "5"}
"""No single step is worth a flag, the way since the anchor is."""


def outcomes(result):
    return {verdict["case_id"]: verdict["outcome"] for verdict in result["gate"]["verdicts"]}


def place_of(project):
    (place,) = (project.path / "baselines").glob("*/tiny")
    return place


def drift(project):
    """Three commits, each a little slower than the one before."""
    before = 20_000
    for length in STEPS:
        text = (project.path / "tiny_work.py").read_text()
        project.write("tiny_work.py", text.replace(f"{before:_}", f"{length:_}"))
        project.commit(f"{length} numbers")
        before = length


class TestAnchor:
    def test_is_frozen_shown_kept_replaced_and_removed(self, project_with_baseline):
        project, place = project_with_baseline, place_of(project_with_baseline)
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
        project, place = project_with_baseline, place_of(project_with_baseline)
        assert project.run("baseline", "anchor").returncode == 0
        frozen = {file.name: file.read_bytes() for file in (place / "anchor").iterdir()}
        project.commit("anchor")
        arguments = ("--rounds", "4", "--spread", "0", "--allow-unfit", "--no-progress")
        done = project.run("baseline", "update", *arguments)
        assert done.returncode == 0, done.stderr
        assert (place / "timings.json").read_bytes() != frozen["timings.json"]
        assert {file.name: file.read_bytes() for file in (place / "anchor").iterdir()} == frozen

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (("baseline", "anchor"), 3, "no baseline of suite 'tiny' is stored for this machine"),
            (("baseline", "anchor", "--from", "HEAD"), 2, "write git:REV"),
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

    @pytest.mark.parametrize("value", ["HEAD", "git:", "git:HEAD+env:A=1", "git:nowhere"])
    def test_a_configured_one_that_is_no_revision_is_refused(self, project, value):
        done = project.run("gate", "--anchor", PERFGUARD_ANCHOR=value)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr

    def test_a_corrupt_one_ends_a_gate_before_anything_is_measured(self, project_with_baseline):
        project, place = project_with_baseline, place_of(project_with_baseline)
        assert project.run("baseline", "anchor").returncode == 0
        (place / "anchor" / "noise.json").write_text("{ cut off")
        done = project.run("gate")
        assert (done.returncode, done.stdout) == (3, "")
        assert "noise.json is corrupt" in done.stderr
        assert "corrupt" in project.run("baseline", "show").stdout
        assert not (project.path / ".perfguard" / "runs").exists()


def test_small_steps_pass_one_by_one_and_are_red_against_the_anchor(project):
    first = project.git("rev-parse", "HEAD")
    drift(project)
    step = project.result("compare", "--baseline", "git:HEAD~1", "-c", "tiny.sum", **LIMITS)
    assert outcomes(step)["tiny.sum"] != "regressed", step["reason"]
    result = project.result("gate", "--anchor", "-c", "tiny.sum", PERFGUARD_ANCHOR=f"git:{first}", **LIMITS)
    assert outcomes(result) == {"tiny.sum": "regressed"}, result["reason"]
    assert result["gate"]["verdicts"][0]["comparison"]["margin_ratio"] == 0.05
    shown = project.result("show", **LIMITS)
    assert outcomes(shown) == {"tiny.sum": "regressed"}
    assert shown["gate"]["policy"] == result["gate"]["policy"]
    assert any(note.startswith("drift: the candidate is compared with the anchor of 20") for note in result["notes"])


def test_a_gate_against_a_stored_baseline_pairs_what_has_drifted_with_the_anchors_commit(project_with_baseline):
    project, place = project_with_baseline, place_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    project.commit("anchor")
    drift(project)
    arguments = ("--rounds", "4", "--spread", "0", "--allow-unfit", "--no-progress", "--allow-different")
    assert project.run("baseline", "update", *arguments).returncode == 0
    project.commit("baseline of the slower code")
    result = project.result("gate", "--baseline", "stored", "--budget", "60", **LIMITS)
    notes = "\n".join(result["notes"])
    assert "tiny.sum: +" in notes
    assert "since the anchor of 20" in notes
    assert outcomes(result)["tiny.sum"] == "regressed", result["reason"]
    (verdict,) = [v for v in result["gate"]["verdicts"] if v["case_id"] == "tiny.sum"]
    assert "since the anchor of 20" in verdict["reason"]
    assert verdict["comparison"]["design"] == "paired"
    assert outcomes(result)["tiny.sort"] != "regressed"
    assert result["exit_code"] == 1
    assert len(project.git("worktree", "list").splitlines()) == 1
    shutil.rmtree(place / "anchor")
    without = project.result("gate", "--baseline", "stored", "--budget", "60", **LIMITS)
    assert outcomes(without)["tiny.sum"] != "regressed", without["reason"]


def test_an_anchor_of_another_stack_is_said_and_not_compared(project_with_baseline):
    project, place = project_with_baseline, place_of(project_with_baseline)
    assert project.run("baseline", "anchor").returncode == 0
    fingerprint = json.loads((place / "anchor" / "fingerprint.json").read_text())
    fingerprint["cpu"]["brand"] = "Another CPU @ 9 GHz"
    fingerprint["machine_id"] = "another-machine"
    fingerprint["cpu"]["microarchitecture"] = "another"
    (place / "anchor" / "fingerprint.json").write_text(json.dumps(fingerprint))
    result = project.result("gate", "--baseline", "stored", PERFGUARD_ROUNDS="2")
    assert any(note.startswith("not compared with the anchor of 20") for note in result["notes"])
