"""A run of heterogeneous training in the terminal, in a log, on a page and on a screen."""

from __future__ import annotations

import pytest

from perfguard.cli.output import plain_text
from perfguard.config import load_config
from perfguard.recordings import decode_event, encode_event
from perfguard.records.run_data import RunData
from perfguard.records.training import Device, GroupConfig, Kind, TrainedOn, TrainingEpoch, TrainingPlanned, WorkerPlace
from perfguard.report.event_lines import line_text
from perfguard.report.pages.build import report_on
from perfguard.report.terminal.training import render_training, use_line
from perfguard.runner.training import at_limits, emulated, recorded_training, training_of
from perfguard.tui.drawing.spans import UNICODE, plain, width_of
from perfguard.tui.drawing.training import training_lines
from perfguard.watch.view.run_view import LogLine, TrainingView
from tests.changed_values import replace
from tests.made_trainings import CONFIG, LOST, OUTCOME, STARTED, TRAINED_ON, epoch, events, use, write_training


def written(tmp_path, **how):
    return write_training(tmp_path / ".perfguard" / "runs" / STARTED.run_id, **how)


def test_events_survive_being_written():
    for each in events():
        assert decode_event(encode_event(each, seq=0, t_wall=0.0, t_mono=0.0), source="test") == each


def test_a_run_is_the_fold_of_its_events(tmp_path):
    found = recorded_training(written(tmp_path), machine="a machine")
    assert found == training_of(RunData.of(events()), machine="a machine")
    assert (found.planned.config, found.outcome, found.exit_code) == (CONFIG, OUTCOME, 0)
    assert [each.epoch for each in found.epochs] == [0, 1, 2, 3]
    assert found.notes == (LOST,)


def test_a_run_that_was_cut_off_shows_what_it_wrote(tmp_path):
    found = recorded_training(written(tmp_path, is_finished=False), machine="a machine")
    assert (found.outcome, found.exit_code) == (None, 3)
    assert [reason.code for reason in found.reasons] == ["training.unfinished"]
    assert "unfinished: the run was cut off" in plain_text(render_training(found))


def test_the_terminal_shows_workers_epochs_and_the_end():
    text = plain_text(render_training(training_of(RunData.of(events()), machine="a machine")))
    for part in ("cpu-0", "large-0", "20,000 examples, 54", "294,407 parameters", "target: the loss reached 0.5"):
        assert part in text
    assert "! worker large-0 is lost: its process was ended by SIGKILL" in text


def test_the_terminal_says_what_the_numbers_are_of():
    lines = plain_text(render_training(training_of(RunData.of(events()), machine="a machine"))).splitlines()
    assert f"run        {STARTED.run_id}" in lines
    assert any(line.startswith("algorithm  adaptive, learning rate 1, seed 0") for line in lines)
    assert any(line.startswith("data       covtype (generated, seed 0): 20,000 examples") for line in lines)


@pytest.mark.parametrize(
    ("batches", "updates", "is_stuck"),
    [
        ({"cpu": 512, "large": 64}, {"cpu": 60, "large": 40}, True),
        ({"cpu": 512, "large": 64}, {"cpu": 51, "large": 49}, False),
        ({"cpu": 64, "large": 256}, {"cpu": 60, "large": 40}, False),
        ({"cpu": 100, "large": 64}, {"cpu": 60, "large": 40}, False),
        ({"cpu": 512}, {"cpu": 60}, False),
    ],
)
def test_batches_that_cannot_go_further_are_noted_where_updates_are_unequal(batches, updates, is_stuck):
    group = GroupConfig(kind=Kind.HOGWILD, batch=64, minimum=64, maximum=512)
    last = replace(epoch(1), batches=batches, updates=updates)
    found = at_limits(replace(CONFIG, groups={"cpu": group, "large": replace(group, batch=128)}), last)
    assert (found is not None) == is_stuck


def test_an_emulated_device_is_noted_once_a_group():
    group = GroupConfig(kind=Kind.REPLICA, batch=64, device=Device.EMULATED, speed=30)
    places = [WorkerPlace(name=f"large-{number}", group="large", cpus=(number,)) for number in range(2)]
    config = replace(CONFIG, groups={**CONFIG.groups, "large": group})
    (noted,) = emulated(TrainingPlanned(config=config, workers=(*places,)))
    assert (noted.code, noted.values) == ("training.emulated", {"group": "large", "speed": 30})


def test_a_line_of_progress_has_loss_updates_and_use():
    assert use_line(use(2), epoch(1)) == (
        "epoch 1, loss 1.0000 · cpu 480 updates, batch 512, 97 % busy · large 20 updates, batch 2,048, 60 % busy"
    )


def test_a_log_tells_of_the_start_and_of_each_epoch():
    lines = [
        line_text(LogLine(seq=0, t_wall=0.0, level="info", what=each))
        for each in events()
        if isinstance(each, (type(STARTED), TrainedOn, TrainingEpoch))
    ]
    assert lines[0] == f"run {STARTED.run_id}: training on covtype"
    assert lines[1] == "training 294,407 parameters on 20,000 examples; cpu: CPU, large: CPU"
    assert lines[-1] == "epoch 3: loss 0.5000 after 3.00 s of training, updates so far cpu 96 %, large 4 %"


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_page_shows_charts_and_tables(tmp_path, is_finished):
    folder = written(tmp_path, is_finished=is_finished)
    page = report_on(load_config(tmp_path, {}, {}), [folder])
    assert "Loss by seconds of training" in page
    assert ("Busy part of the time" in page) == is_finished
    assert "294,407" in page or "covtype" in page


def view(*, epochs=4, has_workers=True):
    data = RunData.of(events()).training
    return TrainingView(
        planned=data.planned,
        trained=TRAINED_ON if has_workers else None,
        epochs=tuple(map(epoch, range(epochs))),
        uses=tuple(map(use, range(1, epochs))),
    )


@pytest.mark.parametrize("width", [30, 60, 100, 200])
@pytest.mark.parametrize("height", [5, 12, 40])
def test_a_screen_is_never_wider_than_it_is(width, height):
    for shown in (view(), view(epochs=0), view(epochs=0, has_workers=False)):
        lines = training_lines(shown, width, height, UNICODE)
        assert max(map(width_of, lines)) <= width


def test_a_screen_says_what_each_group_does():
    text = "\n".join(map(plain, training_lines(view(), 110, 30, UNICODE)))
    assert "adaptive on covtype: 20,000 examples" in text
    assert "epoch 3, loss 0.5000, target 0.6" in text
    assert "96 % of updates  batch    512" in text
    assert "loss over seconds of training" in text
    assert "preparing data and workers" in plain(training_lines(view(epochs=0, has_workers=False), 80, 20, UNICODE)[1])
