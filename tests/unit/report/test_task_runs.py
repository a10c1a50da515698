"""A run of a task in the terminal, in a log, on a page and on a screen."""

from __future__ import annotations

import pytest

from perfguard.cli.output import plain_text
from perfguard.config import load_config
from perfguard.gate.tasks import recorded_task
from perfguard.records.facts import Severity, fact
from perfguard.records.tasks import ModelPrecision, Scenario, TaskCell
from perfguard.report.pages.build import read_run, report_on
from perfguard.report.terminal.tasks import render_task
from perfguard.tasks.judging import judge
from perfguard.tui.drawing.spans import plain, width_of
from perfguard.tui.drawing.tasks import task_lines
from perfguard.watch.view.run_view import TaskView
from tests.changed_values import replace
from tests.task_records import FIRST, LOADED, NOISE, SECOND, STARTED, measured, plan, timed, trained, write_task_run

INT8 = TaskCell(backend="onnxruntime", precision=ModelPrecision.INT8, threads=1)
REFUSED = replace(FIRST, precision=ModelPrecision.INT8)
PLAN = plan(FIRST, SECOND, INT8, REFUSED)
RUNS = [
    *measured(FIRST, 80e-6),
    *measured(SECOND, 40e-6, noise=NOISE[::-1]),
    *measured(INT8, 20e-6, quality=0.2, loaded=replace(LOADED, ran_in="int8"), noise=NOISE[::-1]),
    replace(timed(REFUSED, 0, None), problem=fact("task.refused", severity=Severity.NOTABLE, reason="no INT8")),
]
TRAINING = replace(plan(FIRST, SECOND, scenario=Scenario.TRAINING), rounds=3)
TRAININGS = [
    *(trained(FIRST, seed, 0.2, 0.4, 0.5) for seed in range(3)),
    *(trained(SECOND, seed, 0.3, 0.46) for seed in range(3)),
]


def written(tmp_path, asked=PLAN, runs=RUNS, **how):
    return write_task_run(tmp_path / ".perfguard" / "runs" / STARTED.run_id, asked, runs, **how)


def test_the_terminal_shows_speed_beside_quality_and_why_a_cell_does_not_count(tmp_path):
    text = plain_text(render_task(recorded_task(written(tmp_path), machine="a machine")))
    for part in (
        "80.00 µs",
        "0.500 [",
        "invalid  onnxruntime-int8-1: top-1 is 0.2, the target is 0.45",
        "refused  eager-int8-1: no INT8",
        "2 of 4 cells valid; recommended: onnxruntime-fp32-1",
    ):
        assert part in text


def test_the_terminal_shows_the_seeds_of_trainings(tmp_path):
    text = plain_text(render_task(recorded_task(written(tmp_path, TRAINING, TRAININGS), machine="a machine")))
    for part in ("time to quality", "3.000 s to 3.000 s", "6.000 s", "0.5000", "2.000 s to 2.000 s", "0.4600"):
        assert part in text


def test_a_page_has_a_matrix_and_every_cell(tmp_path):
    page = report_on(load_config(tmp_path, {}, {}), [written(tmp_path)])
    assert "fp32, 1 thread" in page
    assert "int8, 1 thread" in page
    assert "Time over that of eager-fp32-1" in page
    assert "top-1 is 0.2, the target is 0.45" in page
    assert "damaged" not in page


def test_a_page_shows_the_quality_of_trainings_over_time(tmp_path):
    page = report_on(load_config(tmp_path, {}, {}), [written(tmp_path, TRAINING, TRAININGS)])
    assert "Quality of eager-fp32-1 by seconds of training" in page
    assert "the target is 0.45" in page


def test_a_run_that_was_cut_off_says_so(tmp_path):
    folder = written(tmp_path, runs=RUNS[:3], is_finished=False)
    found = read_run(load_config(tmp_path, {}, {}), folder)
    assert [cell.outcome.value for cell in found.task.cells] == ["unmeasured"] * 4
    assert any("no end" in problem for problem in found.problems)


def screen(asked, runs, width=120):
    return [plain(each) for each in task_lines(TaskView(plan=asked, runs=tuple(runs), cells=judge(asked, runs)), width)]


def test_a_screen_shows_each_cell_and_the_last_measurement():
    lines = screen(PLAN, RUNS)
    assert lines[0].startswith("own: single-stream")
    assert "19 of 24 measurements; the last: eager-int8-1, round 1: no INT8" in lines[2]
    (cell,) = [each for each in lines if each.startswith("onnxruntime-fp32-1")]
    assert "0.9000" in cell
    assert cell.endswith("valid")
    assert any("top-1 is 0.2, the target is 0.45" in each for each in lines)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("runs", [(), RUNS[:1], RUNS])
def test_no_line_of_a_screen_is_wider_than_it(width, runs):
    view = TaskView(plan=PLAN, runs=tuple(runs), cells=judge(PLAN, runs))
    assert all(width_of(each) <= width for each in task_lines(view, width))


def test_a_screen_of_trainings_counts_no_measurements_of_quality():
    assert "6 of 6 measurements" in screen(TRAINING, TRAININGS)[2]
