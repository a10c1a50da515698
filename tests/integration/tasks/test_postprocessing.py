"""Answers of outputs: the likeliest span in the text, the likeliest class of a cell, boxes on two grids."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from perfguard.tasks.child.detection import ssd_anchors
from perfguard.tasks.child.postprocessing import LONGEST_SPAN, POSTPROCESSES

TOKENS = 64
TEXT = slice(10, 60)


def spans(**logits):
    tokens = np.zeros((1, 3, TOKENS), np.int64)
    tokens[0, 1, :60] = 1
    tokens[0, 2, TEXT] = 1
    found = np.zeros((1, TOKENS, 2), np.float32)
    for name, values in logits.items():
        for position, value in values.items():
            found[0, position, ("start", "end").index(name)] = value
    return POSTPROCESSES["span"]((found,), tokens)[0].tolist()


def test_a_span_begins_and_ends_where_both_together_are_likeliest():
    assert spans(start={20: 5}, end={24: 4}) == [[20, 24]]
    assert spans(start={12: 5, 55: 3}, end={24: 1, 56: 4}) == [[55, 56]]


def test_a_span_does_not_end_before_it_begins_and_is_not_too_long():
    assert spans(start={30: 5}, end={29: 4, 33: 1}) == [[30, 33]]
    assert spans(start={11: 5}, end={11 + LONGEST_SPAN: 4, 12: 1}) == [[11, 12]]
    assert spans(start={11: 5}, end={10 + LONGEST_SPAN: 9}) == [[11, 10 + LONGEST_SPAN]]


def test_a_span_lies_in_the_text():
    assert spans(start={3: 9, 20: 1}, end={3: 9, 21: 1}) == [[20, 21]]
    assert spans(start={61: 9, 20: 1}, end={62: 9, 21: 1}) == [[20, 21]]


def test_segments_are_the_likeliest_classes():
    logits = np.zeros((1, 3, 2, 2), np.float32)
    logits[0, 2, 0, 1], logits[0, 1, 1, 0] = 1, 2
    assert POSTPROCESSES["segments"]((logits,), logits)[0].tolist() == [[[0, 2], [1, 0]]]


@pytest.mark.parametrize("count", [1917, 2034])
def test_boxes_without_an_offset_are_the_anchors(count):
    logits = np.full((1, count, 3), -9, np.float32)
    logits[0, count - 1, 2] = 9
    (boxes,) = POSTPROCESSES["ssd"]((np.zeros((1, count, 4), np.float32), logits), logits)
    anchors = ssd_anchors(count)
    y, x, height, width = anchors[-1]
    corners = np.clip([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 0, 1)
    assert anchors.shape == (count, 4)
    assert boxes[0, 0, :4] == pytest.approx(corners, abs=1e-6)
    assert (boxes[0, 0, 4], (boxes[0, :, 5] > 0).sum()) == (2, 1)


def test_of_boxes_that_overlap_in_one_class_the_best_stays():
    corners = np.array([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.4], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], np.float32)
    logits = np.array([[2, -9], [3, -9], [-9, 1], [-9, -3]], np.float32)
    (boxes,) = POSTPROCESSES["boxes"]((corners[None], logits[None]), logits)
    assert boxes[0, :2, :5].tolist() == [pytest.approx([0, 0, 0.5, 0.4, 1]), pytest.approx([0, 0, 0.5, 0.5, 2])]
    assert boxes[0, :2, 5] == pytest.approx(1 / (1 + np.exp(-np.array([3.0, 1.0]))))
    assert not boxes[0, 2:].any()
