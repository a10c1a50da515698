from __future__ import annotations

import shutil

import pytest

from perfguard.codec import to_json
from perfguard.config import load_config
from perfguard.gate.rejudge import rejudge_run
from perfguard.gate.show import show_run
from perfguard.records.facts import fact
from perfguard.report.comment.comment import CommentContext, render_comment
from tests.changed_values import replace
from tests.commented_results import PASSED
from tests.recorded_runs import DATA


@pytest.fixture
def loaded(tmp_path):
    return load_config(tmp_path, {}, {})


@pytest.fixture
def folder(tmp_path):
    """A run of one arm, as a gate against a stored baseline records it."""
    return shutil.copytree(DATA / "rounds", tmp_path / "run")


def test_a_run_is_shown_with_the_verdict_that_it_had(loaded, folder):
    had = replace(PASSED, reasons=(fact("gate.passed", unchanged=2, cases=2, equivalence_ratio=0.02),))
    (folder / "result.json").write_text(to_json(had))
    shown = show_run(loaded, folder)
    assert (shown.verdict, shown.exit_code, shown.reasons) == (had.verdict, had.exit_code, had.reasons)
    assert shown.gate is not None
    assert "perfguard: pass" in render_comment(shown, CommentContext(marker="gate"))


@pytest.mark.parametrize("content", [None, "{", '{"schema": 99}'])
def test_a_run_without_a_readable_result_is_judged_from_what_it_measured(loaded, folder, content):
    (folder / "result.json").unlink(missing_ok=True)
    if content is not None:
        (folder / "result.json").write_text(content)
    assert show_run(loaded, folder) == rejudge_run(loaded, folder)
    assert show_run(loaded, folder).verdict == "measured"
