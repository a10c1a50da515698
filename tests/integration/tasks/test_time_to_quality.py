"""Trainings of tasks: compiling is no part of their time, and trying them out changes nothing that is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from perfguard.records.tasks import DataPart, Mode, ModelPrecision, Scenario, Size, TaskCell, TaskJob  # noqa: E402
from perfguard.tasks.child.examples import load_examples  # noqa: E402
from perfguard.tasks.child.training import measure_training  # noqa: E402
from perfguard.tasks.task_files import duration_of, load_task  # noqa: E402

TASK = load_task("digits")


def train(backend="eager", precision=ModelPrecision.FP32):
    loaded = []
    job = TaskJob(
        task=TASK,
        cell=TaskCell(backend=backend, precision=precision, threads=1),
        scenario=Scenario.TRAINING,
        mode=Mode.PERFORMANCE,
        duration=duration_of(TASK, Scenario.TRAINING, Size.RAPID),
        part=DataPart.FULL,
        logs="",
        data_folder="",
        cache="",
        seed=3,
    )
    examples = load_examples(TASK.data, DataPart.FULL, Path())
    found = measure_training(job, examples, lambda kind, value: loaded.append(value) if kind == "loaded" else None)
    return found, loaded[0]


def test_the_same_seed_trains_the_same_and_reaches_the_target():
    (first, about), (second, _) = train(), train()
    assert [each.quality for each in first.epochs] == [each.quality for each in second.epochs]
    assert (first.is_reached, first.seed, about.stages) == (True, 3, {})
    assert first.last.quality >= TASK.quality.least
    assert first.examples == 1200 * len(first.epochs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
def test_bf16_is_read_back_and_compiling_is_a_stage_of_its_own():
    found, about = train("compile", ModelPrecision.BF16)
    assert (found.is_reached, about.ran_in) == (True, "bf16")
    assert about.stages.keys() == {"compile"}
