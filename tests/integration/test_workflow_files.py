"""The action, this repository's workflows and those that `perfguard init` writes, as their checkers see them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfguard.cli.commands.init import ACTION, plan_scaffold, write_scaffold

REPOSITORY = Path(__file__).parents[2]
WRITTEN = ("perf.yml", "perf-report.yml", "baseline.yml")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def own(tmp_path):
    """The action and the workflows of this repository, without all else."""
    if not (REPOSITORY / "action.yml").is_file() or not (REPOSITORY / ".github").is_dir():
        pytest.skip("the action and the workflows are not beside an installed package")
    place = tmp_path / "own"
    shutil.copytree(REPOSITORY / ".github", place / ".github")
    shutil.copy(REPOSITORY / "action.yml", place)
    return place


def written_in(place, action=ACTION):
    place.mkdir()
    write_scaffold(plan_scaffold(place, {}, workflows=True, force=False, action=action))
    return place


def checked(directory, *command):
    """What a checker says, where it is installed beside this interpreter."""
    program = shutil.which(command[0], path=Path(sys.executable).parent)
    if program is None:
        pytest.skip(f"{command[0]} is not installed beside this interpreter")
    return subprocess.run([program, *command[1:]], cwd=directory, capture_output=True, text=True)


def objections(directory, *command):
    """What a checker objects to; empty where it ends well."""
    done = checked(directory, *command)
    return done.stdout + done.stderr if done.returncode else ""


def objections_by_schema(place, name, files):
    return objections(place, "check-jsonschema", "--builtin-schema", f"vendor.{name}", *map(str, files))


def objections_of_an_audit(place):
    return objections(place, "zizmor", "--offline", "--no-progress", "--persona=auditor", ".")


def yaml_of(path):
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def steps_of(workflow):
    (job,) = workflow["jobs"].values()
    return job["steps"]


def pins_in(text):
    """Actions by name, with the commit and the version that a file pins."""
    return dict(re.findall(r"uses: ([\w-]+/[\w-]+)@([0-9a-f]{40} # v[\d.]+)$", text, re.MULTILINE))


def test_the_action_fits_the_schema_of_actions(own):
    assert objections_by_schema(own, "github-actions", [own / "action.yml"]) == ""


def test_the_workflows_of_this_repository_fit_the_schema(own):
    assert objections_by_schema(own, "github-workflows", sorted((own / ".github" / "workflows").iterdir())) == ""


def test_an_audit_finds_nothing_in_the_action_and_the_workflows(own):
    assert objections_of_an_audit(own) == ""


def test_an_audit_sees_what_it_is_there_for(tmp_path):
    place = written_in(tmp_path / "project")
    path = place / ".github" / "workflows" / "perf.yml"
    path.write_text(path.read_text().replace("run: ", "run: echo ${{ github.event.pull_request.title }}; "))
    done = checked(place, "zizmor", "--offline", "--no-progress", ".")
    assert done.returncode != 0
    assert "template-injection" in done.stdout


def test_the_written_workflows_fit_the_schema(tmp_path):
    place = written_in(tmp_path / "project")
    written = [place / ".github" / "workflows" / name for name in WRITTEN]
    assert objections_by_schema(place, "github-workflows", written) == ""


@pytest.mark.parametrize("action", [ACTION, f"me/perfguard@{COMMIT}"], ids=["by tag", "by commit"])
def test_an_audit_finds_nothing_in_the_written_workflows(tmp_path, action):
    assert objections_of_an_audit(written_in(tmp_path / "project", action)) == ""


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_workflow_is_this_repositorys_own_but_for_its_steps(own, tmp_path, name):
    ours, theirs = (
        yaml_of(place / ".github" / "workflows" / name) for place in (own, written_in(tmp_path / "project"))
    )
    for workflow in (ours, theirs):
        (job,) = workflow["jobs"].values()
        del job["steps"]
        # The report checks its own action out, which others name; the suites have other names.
        job["permissions"].pop("contents", None) if name == "perf-report.yml" else None
        workflow.get("on", {}).get("workflow_dispatch", {}).pop("inputs", None)
    assert theirs == ours


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_workflow_pins_the_actions_that_this_repository_uses(own, tmp_path, name):
    everywhere = "".join(path.read_text() for path in [*(own / ".github" / "workflows").iterdir(), own / "action.yml"])
    known = pins_in(everywhere)
    text = (written_in(tmp_path / "project") / ".github" / "workflows" / name).read_text()
    assert all(known[action] == pin for action, pin in pins_in(text).items())
    assert len(pins_in(text)) + 1 == len(set(re.findall(r"uses: (\S+)", text)))  # all but perfguard's own


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_workflow_gives_the_action_only_inputs_that_it_has(own, tmp_path, name):
    inputs = yaml_of(own / "action.yml")["inputs"]
    steps = steps_of(yaml_of(written_in(tmp_path / "project") / ".github" / "workflows" / name))
    (step,) = [step for step in steps if step.get("uses", "").startswith(ACTION)]
    assert set(step.get("with", {})) <= set(inputs)
