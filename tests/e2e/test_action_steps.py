"""The steps of action.yml, run as a runner runs them: a gate on two commits, the comment on it, a new baseline."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from perfguard.codec import to_json
from perfguard.store.artifacts import result_in_zip
from tests.commented_results import REGRESSED
from tests.composite_action import ACTION, commands_in, runner_for
from tests.fake_github import REPOSITORY, FakeGitHub, blob_content, refusal

HEAD = "c0ffee" * 6 + "abcd"
TITLE = "::error title=perfguard%3A tiny.sum regressed"
HOSTILE = "x%0A::error::forged `code` @everyone <b> $(touch /tmp/owned) ${{ github.token }}"


def pull_request_event(folder: Path, *, labels: tuple[str, ...] = (), fork: str = REPOSITORY) -> Path:
    head = {"sha": HEAD, "ref": HOSTILE, "repo": {"full_name": fork}}
    pull = {
        "number": 7,
        "title": HOSTILE,
        "head": head,
        "base": {"sha": "b" * 40, "repo": {"full_name": REPOSITORY}},
        "labels": [{"name": name} for name in labels],
    }
    path = folder / "event.json"
    path.write_text(json.dumps({"action": "synchronize", "number": 7, "pull_request": pull}))
    return path


def runner(project, tmp_path, event: Path | None = None, **github: str):
    where = {
        "repository": REPOSITORY,
        "run_id": "4711",
        "run_attempt": "1",
        "server_url": "https://github.example",
        "base_ref": "main",
        "ref_name": "main",
        **({"event_path": str(event)} if event else {}),
        **github,
    }
    return runner_for(project.path, project.environment, tmp_path / "job", **where)


def slow_down(project) -> None:
    """So much slower that a host that is busy with other tests sees it too."""
    project.replace("tiny_work.py", "return sum(range(LENGTH))", "return [sum(range(LENGTH)) for _ in range(12)][0]")
    project.commit("twelve times the work")


def gate(project, tmp_path, *, labels: tuple[str, ...] = (), **inputs: str):
    project.write(".gitignore", "perfguard-out\n.perfguard\n")
    job = runner(project, tmp_path, pull_request_event(tmp_path, labels=labels))
    return job.run(**{"mode": "gate", "budget": "200", **inputs})


def test_the_pull_request_that_brings_perfguard_passes_and_says_that_nothing_is_gated_yet(empty_project, tmp_path):
    empty_project.path.mkdir(exist_ok=True)
    empty_project.git("init", "-q", "-b", "main")
    empty_project.write("net.py", "")
    empty_project.commit("a project")
    empty_project.write("perfguard.toml", 'suite = "quick"\n')
    empty_project.commit("perfguard")
    ran = gate(empty_project, tmp_path)
    assert not ran.failed, ran.step("gate").log
    assert ran.outputs["verdict"] == "none"
    assert "perfguard gates nothing yet" in ran.summary
    assert any(line.startswith("::notice title=perfguard gates nothing yet") for line in ran.annotations())


def test_a_slower_pull_request_fails_and_is_told_in_all_places(project, tmp_path):
    slow_down(project)
    ran = gate(project, tmp_path)
    assert ran.failed, ran.step("gate").log
    assert ran.step("gate").returncode == 1
    assert ran.outputs == {"verdict": "regressed", "exit-code": "1", "output-dir": "perfguard-out", "pull-request": ""}
    assert any(line.startswith(TITLE) for line in ran.annotations()), ran.step("gate").log
    assert "🔺 perfguard: regressed at c0ffeec0ffee" in ran.summary
    assert "set the label `perf-accepted`" in ran.summary
    assert "https://github.example/octo/net/actions/runs/4711" in ran.summary
    upload = ran.step("actions/upload-artifact")
    assert upload.inputs["name"] == "perfguard-gate-1"
    left = project.path / upload.inputs["path"]
    assert {"report.html", "result.json", "summary.md", "events.jsonl", "arms.json", "plan.json", "raw"} <= {
        p.name for p in left.iterdir()
    }
    assert not (left / "arms").exists()
    commands = [f"git:{project.git('rev-parse', revision)}" for revision in ("HEAD^1", "HEAD")]
    assert f"perfguard compare --baseline {commands[0]} --candidate {commands[1]} --suite tiny" in ran.summary
    comment_on_what_was_left(left)


@pytest.mark.parametrize(("strict", "code"), [("", 0), ("true", 4)])
def test_a_gate_that_cannot_decide_warns_and_fails_only_where_that_is_wanted(project, tmp_path, strict, code):
    project.replace("perfguard.toml", "max_blocks = 12", "max_blocks = 2")
    project.commit("too few blocks for a verdict")
    project.replace("tiny_work.py", "return sum(range(LENGTH))", "return sum(range(LENGTH + 0))")
    project.commit("other text")
    ran = gate(project, tmp_path, **({"strict": strict} if strict else {}))
    assert (ran.outputs["verdict"], ran.outputs["exit-code"]) == ("inconclusive", str(code)), ran.step("gate").log
    assert ran.failed == (code != 0)
    assert any(line.startswith("::warning title=perfguard%3A tiny.sum inconclusive") for line in ran.annotations())


def test_an_open_gate_is_measured_once_more_where_the_budget_is_auto(project, tmp_path):
    project.replace("perfguard.toml", "max_blocks = 12", "max_blocks = 4")
    project.commit("too few blocks for a verdict")
    project.replace("tiny_work.py", "return sum(range(LENGTH))", "return sum(range(LENGTH + 0))")
    project.commit("other text")
    ran = gate(project, tmp_path, budget="auto")
    assert ran.outputs["verdict"] == "inconclusive", ran.step("gate").log
    result = json.loads((project.path / "perfguard-out" / "result.json").read_text())
    (second,) = (note for note in result["notes"] if note["code"] == "gate.second_try")
    assert second["values"]["first_s"] < second["values"]["budget_s"] <= 2 * second["values"]["first_s"]
    assert result["gate"]["policy"]["alpha"] == pytest.approx(0.004)


def comment_on_what_was_left(left: Path) -> None:
    """The artifact is what the comment step needs, and holds nothing that it refuses."""
    result = result_in_zip(io.BytesIO(zipped(left)), source="artifact")
    assert result.verdict == "regressed"
    assert result.run_id == json.loads((left / "result.json").read_text())["run_id"]


def zipped(folder: Path) -> bytes:
    return zip_of({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()})


def zip_of(members: dict[str, str | bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(members.items()):
            archive.writestr(name, data)
    return content.getvalue()


def test_a_pull_request_with_the_label_passes_and_its_comment_says_why(project, tmp_path, httpserver):
    slow_down(project)
    ran = gate(project, tmp_path, labels=("bug", "perf-accepted"), name="pr")
    assert not ran.failed, ran.step("gate").log
    assert (ran.outputs["verdict"], ran.outputs["exit-code"]) == ("regressed", "0")
    assert "Accepted by the label `perf-accepted`" in ran.summary
    hub = FakeGitHub(httpserver, prefix="/api/v3")
    hub.open_pull(7, HEAD, fork="eve/net", labels=("perf-accepted",))
    upload = ran.step("actions/upload-artifact").inputs
    hub.leave(4711, upload["name"], zipped(project.path / upload["path"]))
    job = runner(project, tmp_path / "second", workflow_run_event(tmp_path), api_url=hub.url)
    for _ in range(2):
        told = job.run(mode="comment")
        assert not told.failed, told.step("comment").log
    (body,) = hub.bodies()
    assert body.startswith("<!-- perfguard:pr -->\n<!-- run 4711.1 -->\n\n### 🔺 perfguard: regressed at c0ffeec0ffee")
    assert "Accepted by the label `perf-accepted`" in body
    assert "the fork's own workflow run" in body
    assert hub.count("PATCH") == 0
    assert all("octo/net" in line for line in hub.asked)


def test_a_gate_that_fails_on_nothing_reports_all_the_same(project, tmp_path):
    slow_down(project)
    ran = gate(project, tmp_path, fail_on="never", upload="false")
    assert not ran.failed, ran.step("gate").log
    assert "🔺 perfguard: regressed" in ran.summary
    assert any(line.startswith(TITLE) for line in ran.annotations())
    assert [step.used for step in ran.steps if step.used] == []


def test_an_unchanged_pull_request_passes_without_annotations(project, tmp_path):
    project.write("notes.md", "nothing that is measured\n")
    project.commit("notes")
    ran = gate(project, tmp_path)
    assert not ran.failed, ran.step("gate").log
    assert ran.outputs["exit-code"] == "0"
    assert "✅ perfguard: pass" in ran.summary
    assert ran.annotations() == []


def test_a_clone_without_the_parent_is_one_sentence(project, tmp_path):
    slow_down(project)
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", project.path.as_uri(), str(shallow)], check=True)
    job = runner(project, tmp_path, pull_request_event(tmp_path))
    job.workspace = shallow
    ran = job.run(mode="gate")
    assert ran.step("gate").returncode == 2
    assert ran.outputs["verdict"] == "error"
    (annotation,) = ran.annotations()
    assert "check out with `fetch-depth: 2`" in annotation
    assert "fetch-depth: 2" in ran.summary
    assert not any((step.used or "").startswith("actions/upload") for step in ran.steps)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"mode": "gates"}, "mode is none of"),
        ({"name": "a b"}, "name has other characters"),
        ({"name": "--"}, "name has other characters"),
        ({"mode": "$(touch owned)"}, "mode is none of"),
    ],
)
def test_an_input_that_makes_no_sense_stops_the_job_at_once(project, tmp_path, inputs, said):
    ran = runner(project, tmp_path, pull_request_event(tmp_path)).run(**inputs)
    assert [step.name for step in ran.steps] == ["install"]
    assert ran.step("install").returncode == 2
    assert said in ran.step("install").log
    assert not (project.path / "owned").exists()


@pytest.mark.parametrize("name", ["against", "suite", "fail_on", "budget", "cpus", "threads", "accept_label"])
def test_no_input_is_read_as_shell(project, tmp_path, name):
    ran = gate(project, tmp_path, **{name: "$(touch owned)`touch owned`;touch owned\n::error::forged"})
    assert not (project.path / "owned").exists()
    assert not any("forged" in line for line in commands_in(ran.step("gate").log) if line.startswith("::error::"))


def test_a_token_beside_the_measured_code_is_refused(project, tmp_path):
    job = runner(project, tmp_path, pull_request_event(tmp_path))
    job.environment["GITHUB_TOKEN"] = "ghs_secret"
    ran = job.run(mode="gate")
    assert ran.step("gate").returncode == 2
    assert "GITHUB_TOKEN" in ran.step("gate").log
    assert "ghs_secret" not in ran.step("gate").log


@pytest.mark.parametrize("kind", ["link", "files", "parent"])
def test_a_pull_request_that_brings_the_output_folder_is_refused(project, tmp_path, kind):
    target = tmp_path / "elsewhere"
    target.mkdir()
    if kind == "link":
        (project.path / "perfguard-out").symlink_to(target)
    elif kind == "parent":
        (project.path / "deep").symlink_to(target)
    else:
        project.write("perfguard-out/result.json", "{}")
    project.commit("brings a folder")
    out = "deep/out" if kind == "parent" else "perfguard-out"
    ran = gate(project, tmp_path, output_dir=out)
    assert ran.step("gate").returncode == 2
    assert "name another" in ran.step("gate").log
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("place", [".perfguard", "deep/.perfguard"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_pull_request_that_brings_perfguards_own_folder_is_refused(project, tmp_path, place, kind):
    path = project.path / place
    path.parent.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to(tmp_path)
    else:
        project.write(f"{place}/envs/0123/bin/python", "#!/bin/sh\nsleep 1\n")
    project.commit("brings a folder")
    ran = gate(project, tmp_path)
    assert ran.step("gate").returncode == 2
    assert "perfguard's own; take it out" in ran.step("gate").log


def test_what_a_candidate_prints_is_no_command(project, tmp_path):
    lines = "\\n::error::forged\\n##[error]forged\\n::set-output name=verdict::pass\\n::stop-commands::x\\n"
    printing = f'import sys\nprint("{lines}")\nprint("{lines}", file=sys.stderr)\n\n\n'
    raising = f'def total():\n    raise ValueError("{lines}")\n\n\ndef other():'
    project.replace("tiny_work.py", "def total():", printing + raising)
    project.commit("prints commands")
    ran = gate(project, tmp_path)
    log = ran.step("gate").log
    assert ran.outputs["verdict"] == "failed", log
    commands = commands_in(log)
    assert commands, log
    assert all(line.startswith(("::error title=perfguard%3A", "::warning title=perfguard%3A")) for line in commands)


def test_the_install_step_takes_the_actions_own_source_and_no_other(project, tmp_path):
    job = runner(project, tmp_path, pull_request_event(tmp_path))
    job.run(mode="gate", against="nowhere")
    (line,) = (tmp_path / "job" / "bin" / "pip.log").read_text().splitlines()
    root = job.action.parent
    assert line.endswith(f"-c {root}/constraints.txt {root}[github]")


def test_a_token_that_may_only_read_leaves_the_comment_in_the_summary(project, tmp_path, httpserver):
    hub = FakeGitHub(httpserver)
    hub.open_pull(7, HEAD, fork="eve/net")
    hub.leave(4711, "perfguard-gate-1", zip_of({"result.json": to_json(REGRESSED)}))
    hub.fail("POST", "comments", refusal(403, "Resource not accessible by integration"))
    job = runner(project, tmp_path, workflow_run_event(tmp_path), api_url=hub.url)
    told = job.run(mode="comment")
    assert not told.failed, told.step("comment").log
    assert told.summary.startswith("<!-- perfguard:gate -->")
    (annotation,) = told.annotations()
    assert "permissions: pull-requests: write" in annotation


def test_without_an_accepting_label_no_label_accepts(project, tmp_path, httpserver):
    hub = FakeGitHub(httpserver)
    hub.open_pull(7, HEAD, fork="eve/net", labels=("perf-accepted", ""))
    hub.leave(4711, "perfguard-gate-1", zip_of({"result.json": to_json(REGRESSED)}))
    job = runner(project, tmp_path, workflow_run_event(tmp_path), api_url=hub.url)
    assert not job.run(mode="comment", accept_label="").failed
    (body,) = hub.bodies()
    assert "label" not in body


def test_a_forged_artifact_fails_the_comment_step_in_one_sentence(project, tmp_path, httpserver):
    hub = FakeGitHub(httpserver)
    hub.open_pull(7, HEAD, fork="eve/net")
    hub.leave(4711, "perfguard-gate-1", b"::error::no zip")
    told = runner(project, tmp_path, workflow_run_event(tmp_path), api_url=hub.url).run(mode="comment")
    assert told.step("comment").returncode == 3
    assert "is not a zip that can be read" in told.step("comment").log
    assert hub.bodies() == []


def test_only_the_steps_that_run_no_foreign_code_get_the_token():
    steps = YAML(typ="safe").load(ACTION)["runs"]["steps"]
    given = {step.get("id", "?"): json.dumps({**step.get("env", {}), **step.get("with", {})}) for step in steps}
    assert [name for name, variables in given.items() if "token" in variables] == ["comment", "propose"]


def test_no_script_of_a_step_holds_an_expression():
    steps = YAML(typ="safe").load(ACTION)["runs"]["steps"]
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]


def workflow_run_event(folder: Path, *, sha: str = HEAD, attempt: int = 1) -> Path:
    run = {"id": 4711, "run_attempt": attempt, "head_sha": sha, "head_repository": {"full_name": "eve/net"}}
    path = folder / "workflow_run.json"
    path.write_text(json.dumps({"action": "completed", "workflow_run": run}))
    return path


def test_a_baseline_is_measured_and_proposed(project, tmp_path, httpserver):
    hub = FakeGitHub(httpserver)
    project.replace("perfguard.toml", "samples = 3", "samples = 3\nrounds = 4\nspread_s = 0")
    project.commit("small baselines")
    job = runner(project, tmp_path, api_url=hub.url)
    ran = job.run(mode="baseline")
    assert not ran.failed, "".join(step.log for step in ran.steps)
    assert ran.outputs["pull-request"] == "70"
    (pull,) = hub.pulls
    assert pull["head"]["ref"] == "perfguard/baseline-tiny"
    assert pull["title"] == "New performance baseline of suite tiny"
    commit = hub.objects[hub.refs["perfguard/baseline-tiny"]]
    assert commit["parents"] == [project.git("rev-parse", "HEAD")]
    written = {entry["path"]: entry["sha"] for entry in hub.objects[commit["tree"]]["tree"]}
    place = next(path for path in written if path.endswith("/tiny/timings.json"))
    assert blob_content(hub, written[place]) == (project.path / place).read_bytes()
