"""SSD-MobileNetV2 with real weights: imported into PyTorch, it computes what TensorFlow Lite's own runtime does."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tflite = pytest.importorskip("tflite")

from perfguard.records.tasks import DataPart, Metric  # noqa: E402
from perfguard.tasks.child.detection import detections, overlaps, ssd_anchors  # noqa: E402
from perfguard.tasks.child.examples import load_examples  # noqa: E402
from perfguard.tasks.child.models import load_model  # noqa: E402
from perfguard.tasks.child.quality import quality_of  # noqa: E402
from perfguard.tasks.places import tasks_home  # noqa: E402
from perfguard.tasks.task_files import load_task  # noqa: E402

TASK = load_task("ssd-mobilenetv2")
WEIGHTS = tasks_home() / TASK.model.weights
PARAMETERS = 4_951_996
PERSON, CAT, COFFEE_CUP = 4, 8, 13

pytestmark = pytest.mark.skipif(
    not WEIGHTS.is_file() and "PERFGUARD_REQUIRE_WEIGHTS" not in os.environ,
    reason="no weights; `perfguard task fetch ssd-mobilenetv2` gets them",
)


@pytest.fixture(scope="module")
def examples():
    return load_examples(TASK.data, DataPart.FULL, tasks_home())


@pytest.fixture(scope="module")
def model(examples, tmp_path_factory):
    return load_model(TASK.model, examples, data_folder=tasks_home(), cache=tmp_path_factory.mktemp("cache"))


def outputs(model, inputs):
    with torch.inference_mode():
        return tuple(each.numpy() for each in model.module(torch.from_numpy(inputs)))


def test_all_parameters_are_imported(model):
    assert (model.parameters, model.has_real_weights) == (PARAMETERS, True)


def test_outputs_are_those_of_tensorflow_lite(model, examples):
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = runtime.Interpreter(str(WEIGHTS))
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    inputs = examples.evaluation.inputs[:4]
    found = outputs(model, inputs)
    for row, image in enumerate(inputs):
        interpreter.set_tensor(source["index"], image[None].transpose(0, 2, 3, 1).copy())
        interpreter.invoke()
        for own, detail in zip(found, interpreter.get_output_details(), strict=True):
            wanted = interpreter.get_tensor(detail["index"])[0]
            assert (np.abs(wanted - own[row]) <= 1e-4 * np.maximum(1, np.abs(wanted))).all()  # offsets go to -80


def test_it_finds_a_person_a_cat_and_a_cup_of_coffee(model, examples):
    found = detections(*outputs(model, examples.evaluation.inputs[:3]))
    assert found[:, 0, 4].astype(int).tolist() == [PERSON, CAT, COFFEE_CUP]
    assert (found[:, 0, 5] > 0.5).all()


def test_it_agrees_with_itself_and_not_with_boxes_of_other_images(model, examples):
    boxes = (detections(*outputs(model, examples.evaluation.inputs[:16])),)
    assert quality_of(Metric.MAP, boxes, boxes) == pytest.approx(1.0)
    assert quality_of(Metric.MAP, (boxes[0][::-1].copy(),), boxes) < 0.3
    assert quality_of(Metric.MAP, (np.zeros_like(boxes[0]),), boxes) == 0.0


def test_there_is_an_anchor_for_each_row_and_overlaps_are_shares():
    anchors = ssd_anchors(1917)
    assert anchors.shape == (1917, 4)
    assert anchors[:3, 2:] == pytest.approx(np.array([[0.1, 0.1], [0.1414, 0.2828], [0.2828, 0.1414]]), abs=1e-3)
    box, others = np.array([0, 0, 1, 1.0]), np.array([[0, 0, 1, 1.0], [0, 0, 0.5, 1.0], [1, 1, 1, 1.0]])
    assert overlaps(box, others).tolist() == [1.0, 0.5, 0.0]


def test_a_map_of_two_thirds_by_hand():
    """Three true boxes of one class, two found exactly and one missed: precision 1 up to recall 2/3 of 101 steps."""
    truth = np.zeros((1, 20, 6), np.float32)
    truth[0, :3] = [[0, 0, 0.2, 0.2, 1, 0.9], [0.4, 0.4, 0.6, 0.6, 1, 0.9], [0.8, 0.8, 1, 1, 1, 0.9]]
    found = truth.copy()
    found[0, 2] = 0
    assert quality_of(Metric.MAP, (found,), (truth,)) == pytest.approx(67 / 101, abs=1e-6)
