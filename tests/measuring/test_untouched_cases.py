"""Cases that a change does not reach pass without being measured, and only those."""

from __future__ import annotations

import json

import pytest

from tests.tiny_projects import DOUBLED, outcomes, verdicts

COMPARE = ("compare", "-q")
OTHER = """\
import other_work
import perfguard


@perfguard.benchmark(name="tiny.other", tags=["no-torch"], phase="forward")
def tiny_other():
    return lambda: float(other_work.total())
"""


def test_a_case_whose_code_did_not_change_is_untouched_and_the_others_are_measured(project):
    project.replace("tiny_work.py", *DOUBLED)
    result = project.result(*COMPARE)
    assert outcomes(result) == {"tiny.sum": "regressed", "tiny.sort": "untouched"}
    sort = verdicts(result)["tiny.sort"]
    assert sort["reasons"][0]["code"] == "verdict.untouched"
    assert sort["reasons"][0]["values"]["functions"] > 3
    assert sort["comparison"]["estimate"] is None
    events = (project.latest_run() / "events.jsonl").read_text().splitlines()
    sampled = {event["case_id"] for event in map(json.loads, events) if event["event"] == "sample"}
    assert sampled == {"tiny.sum"}
    shown = project.result("show", "--rejudge")
    assert outcomes(shown) == outcomes(result)


def test_a_change_that_no_case_reaches_passes_at_once(project):
    project.write("tiny_work.py", (project.path / "tiny_work.py").read_text() + "\n\n# more to come\n")
    result = project.result(*COMPARE)
    assert (result["exit_code"], result["gate"]["reasons"][0]["code"]) == (0, "gate.untouched")
    assert set(outcomes(result).values()) == {"untouched"}
    assert result["gate"]["blocks_total"] == 0
    assert result["error_rate"] is None


@pytest.mark.parametrize(
    ("arguments", "file"), [(("--measure-all",), None), ((), "weights.bin"), (("--confine",), "settings.toml")]
)
def test_where_it_cannot_be_proven_or_is_not_wanted_every_case_is_measured(project, arguments, file):
    if file is not None:
        project.write(file, "native code may read it")
    project.replace("tiny_work.py", *DOUBLED)
    result = project.result(*COMPARE, "--max-blocks", "2", *arguments)
    assert all(verdict["comparison"]["estimate"] is not None for verdict in verdicts(result).values())
    noted = [note for note in result["notes"] if note["code"] == "arms.untouched_unproven"]
    assert [note["values"]["files"] for note in noted] == ([[file]] if file else [])


def test_code_that_is_not_trusted_is_untouched_where_it_imports_nothing_that_changed(project):
    project.write("bench_other.py", OTHER)
    project.write("other_work.py", "def total():\n    return sum(range(9_000))\n")
    project.commit("another model")
    project.replace("tiny_work.py", *DOUBLED)
    result = project.result(*COMPARE, "--confine", "-c", "tiny.*")
    assert outcomes(result)["tiny.other"] == "untouched"
    assert verdicts(result)["tiny.other"]["reasons"][0]["values"]["files"] == 2
    assert outcomes(result)["tiny.sum"] == "regressed"
    assert verdicts(result)["tiny.sort"]["comparison"]["estimate"] is not None  # of the module that changed
