"""Metrics of tasks against values that are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torchmetrics")
pytest.importorskip("pycocotools")

from perfguard.errors import ConfigError
from perfguard.records.tasks import Metric
from perfguard.tasks.child.quality import quality_of


def test_top1_is_the_share_of_right_classes():
    answers = (np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], np.float32),)
    assert quality_of(Metric.TOP1, answers, np.array([1, 0, 0, 0])) == 0.75


def test_auc_is_the_share_of_pairs_in_the_right_order():
    answers = (np.array([[0, 0.1], [0, 0.4], [0, 0.35], [0, 0.8]], np.float32),)
    assert quality_of(Metric.AUC, answers, np.array([0, 0, 1, 1])) == 0.75


def test_jaccard_index_is_pooled_over_images():
    # Class 0: 5 cells of both, 6 of either; class 1: 2 of both, 3 of either. By image the mean would be another one.
    found = np.array([[[0, 0], [0, 1]], [[0, 0], [1, 0]]], np.float32)
    labels = np.array([[[0, 0], [0, 1]], [[0, 0], [1, 1]]])
    assert quality_of(Metric.MIOU, (found,), labels) == pytest.approx((5 / 6 + 2 / 3) / 2)


def test_labels_from_255_do_not_count_and_answers_are_drawn_as_large_as_labels():
    found = np.array([[[0, 1], [0, 1]]], np.float32)
    labels = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 255], [0, 1, 255, 255]]])
    # Class 0: 7 of both, 8 of either; class 1: 5 of both, 6 of either.
    assert quality_of(Metric.MIOU, (found,), labels) == pytest.approx((7 / 8 + 5 / 6) / 2)


def test_f1_of_spans_takes_the_nearest_of_several_answers():
    found = (np.array([[3, 5], [10, 10]], np.float32),)
    right = np.array([[[4, 7], [20, 21]], [[8, 8], [10, 11]]])
    # Tokens 3 4 5 against 4 5 6 7: precision 2/3, recall 1/2; token 10 against 10 11: precision 1, recall 1/2.
    assert quality_of(Metric.F1, found, right) == pytest.approx((4 / 7 + 2 / 3) / 2)


def test_map_of_one_box_found_and_one_missed():
    right = np.array([[[0.0, 0.0, 0.5, 0.5, 1, 1], [0.5, 0.5, 1.0, 1.0, 2, 1]]], np.float32)
    found = np.array([[[0.0, 0.0, 0.5, 0.5, 1, 0.9], [0.0, 0.0, 0.0, 0.0, 0, 0.0]]], np.float32)
    assert quality_of(Metric.MAP, (right,), right) == pytest.approx(1.0)
    assert quality_of(Metric.MAP, (found,), right) == pytest.approx(0.5)  # of two classes one is found


@pytest.mark.parametrize(
    ("metric", "answers", "truth"),
    [
        (Metric.AUC, np.zeros((2, 2), np.float32), (np.zeros((2, 2), np.float32),)),
        (Metric.MIOU, np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)),
        (Metric.F1, np.zeros((2, 3, 2), np.float32), np.zeros((2, 2), np.int64)),
        (Metric.MAP, np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)),
        (Metric.MAP, np.zeros((2, 3, 6), np.float32), np.zeros((2, 3, 6), np.float32)),
    ],
)
def test_answers_of_another_shape_are_refused(metric, answers, truth):
    with pytest.raises(ConfigError, match="quality"):
        quality_of(metric, (answers,), truth)
