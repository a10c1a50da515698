"""What `perfguard history` prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfguard.cli.output import plain_text
from perfguard.history.changes import cases_on_machines
from perfguard.report.terminal.history import render_histories, render_history
from tests.runs_over_time import runs

GOLDEN = Path(__file__).parent / "golden"


def printed(parts):
    return "\n".join(line.rstrip() for line in plain_text(parts).splitlines()) + "\n"


@pytest.mark.parametrize("name", ["history-of-a-case", "history-of-all"])
def test_it_is_printed_as_agreed(name):
    points = [*runs((6, 0.030), (8, 0.033)), *runs((6, 0.031), first=14, stack_id="newer")]
    other = runs((12, 0.002), case_id="kernel.add[size=7]", source_id=None)
    of_case, of_all = cases_on_machines(points), cases_on_machines([*points, *other])
    text = printed(render_history(of_case, last=16) if name == "history-of-a-case" else render_histories(of_all))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PERFGUARD_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_plot_of_one_run_without_a_spread_has_its_point():
    assert printed(render_history(cases_on_machines(runs((1, 1.0))), last=5)).count("●") == 1
