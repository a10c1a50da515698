"""RetinaNet as a task: its labels, its boxes, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perfguard.benchmarks.networks.detector import Detector  # noqa: E402
from perfguard.benchmarks.networks.retinanet import Detections, encode  # noqa: E402
from perfguard.records.tasks import DataPart, Metric  # noqa: E402
from perfguard.tasks.child.examples import load_examples  # noqa: E402
from perfguard.tasks.child.postprocessing import POSTPROCESSES  # noqa: E402
from perfguard.tasks.child.quality import quality_of  # noqa: E402
from perfguard.tasks.task_files import load_task  # noqa: E402


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return load_examples(load_task("retinanet").data, DataPart.TINY, tmp_path_factory.mktemp("data")).evaluation


@pytest.fixture
def detector():
    torch.manual_seed(0)
    return Detector()


def test_offsets_and_logits_that_say_the_labels_are_boxes_of_full_quality(detector, split, monkeypatch):
    alone = split.labels[:, :, 5].sum(axis=1) == 1  # of two shapes in one place, one box is suppressed
    inputs, labels = split.inputs[alone], torch.from_numpy(split.labels[alone])
    anchors = detector.network.anchor_generator((64, 64), [(side, side) for side in (8, 4, 2, 1, 1)])

    def right(images):
        offsets, logits = torch.zeros(len(images), len(anchors), 4), torch.full((len(images), len(anchors), 3), -9.0)
        for image, rows in enumerate(labels):
            for anchor, (top, left, bottom, right, kind, _) in enumerate(rows[rows[:, 5] > 0].tolist()):
                box = torch.tensor([[left, top, right, bottom]]) * 64
                offsets[image, anchor] = encode(box, anchors[anchor : anchor + 1])[0]
                logits[image, anchor, int(kind) - 1] = 9
        return Detections(logits, offsets, anchors)

    monkeypatch.setattr(detector.network, "detect", right)
    outputs = tuple(each.numpy() for each in detector(torch.from_numpy(inputs)))
    answers = POSTPROCESSES["boxes"](outputs, inputs)
    assert len(inputs) > 2
    assert quality_of(Metric.MAP, answers, labels.numpy()) == pytest.approx(1.0)


def test_a_few_steps_on_two_images_lower_the_loss(detector, split):
    inputs, labels = torch.from_numpy(split.inputs[:2]), torch.from_numpy(split.labels[:2])
    optimizer, losses = detector.make_optimizer(), []
    for _ in range(6):
        optimizer.zero_grad()
        losses.append(detector.loss(inputs, labels))
        losses[-1].backward()
        optimizer.step()
    assert np.isfinite([loss.item() for loss in losses]).all()
    assert losses[-1] < 0.9 * losses[0]
