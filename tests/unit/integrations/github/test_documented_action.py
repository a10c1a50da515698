"""docs/github-action.md against action.yml, the code and the workflows."""

from __future__ import annotations

import re

import pytest
from ruamel.yaml import YAML

from perfguard.integrations.github.comments import MOST_GATES
from perfguard.records.verdict import GateOutcome
from perfguard.report.comment.comment import COMMENT_CHARACTERS, SHEDDING
from perfguard.store.artifacts import MOST_RESULT_BYTES
from tests.composite_action import ACTION

DOCUMENT = ACTION.parent / "docs" / "github-action.md"
pytestmark = pytest.mark.skipif(not DOCUMENT.is_file(), reason="the documents are not beside an installed package")


def read(path):
    return YAML(typ="safe").load(path)


def rows() -> dict[str, list[str]]:
    """Cells of the table rows that begin with a name in code, by the name."""
    found = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and re.fullmatch(r"`[a-z-]+`", cells[0]):
            found.setdefault(cells[0].strip("`"), cells[1:])
    return found


def test_every_input_is_documented_with_its_default_and_no_other():
    declared = {name: spec.get("default", "") for name, spec in read(ACTION)["inputs"].items()}
    shown = {name: cells[0].strip("`") for name, cells in rows().items() if name in declared and len(cells) == 2}
    assert shown == declared


def test_every_output_is_documented():
    assert set(read(ACTION)["outputs"]) <= set(rows())


def test_every_row_is_an_input_or_an_output():
    action = read(ACTION)
    assert set(rows()) == {*action["inputs"], *action["outputs"]}


def test_every_verdict_is_documented():
    for outcome in GateOutcome:
        assert f"`{outcome.value}`" in DOCUMENT.read_text(encoding="utf-8")
        assert outcome.value in read(ACTION)["outputs"]["verdict"]["description"]


def test_the_numbers_are_those_of_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"{COMMENT_CHARACTERS:,} characters" in text
    assert f"at most {MOST_GATES} for a run" in text
    assert f"at most {MOST_RESULT_BYTES >> 20} MiB" in text
    assert len(re.findall(r"^\d\. ", text, re.MULTILINE)) == len(SHEDDING)


def test_the_workflows_to_copy_pin_what_this_repository_pins():
    pins = {}
    for path in (*(ACTION.parent / ".github" / "workflows").glob("*.yml"), ACTION):
        pins.update(dict(re.findall(r"uses: ([\w/-]+)@([0-9a-f]{40} # v[\d.]+)", path.read_text())))
    shown = re.findall(r"uses: (actions/[\w-]+)@(.+)", DOCUMENT.read_text(encoding="utf-8"))
    assert shown
    assert all(pins[name] == pin for name, pin in shown)


def test_the_workflows_to_copy_are_workflows():
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    declared = set(read(ACTION)["inputs"])
    assert [read(block)["name"] for block in blocks] == ["perf", "perf-report", "baseline"]
    for block in blocks:
        workflow = read(block)
        assert workflow["permissions"] == {}
        for job in workflow["jobs"].values():
            assert job["permissions"]
            ours = [step for step in job["steps"] if step.get("uses", "").startswith("OWNER/perfguard@")]
            assert [set(step.get("with", {})) <= declared for step in ours] == [True]
