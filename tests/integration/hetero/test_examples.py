"""Examples of heterogeneous training: generated, bundled, and read from files."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from sklearn.datasets import dump_svmlight_file, load_digits  # noqa: E402

from perfguard.errors import HostUnfitError, InterruptedRunError, UsageError  # noqa: E402
from perfguard.hetero.child.data import open_examples, prepare  # noqa: E402
from perfguard.hetero.child.generators import generated  # noqa: E402
from perfguard.hetero.child.rows import Csr  # noqa: E402
from perfguard.hetero.shapes import SHAPES, bytes_of  # noqa: E402
from perfguard.records.training import DataConfig  # noqa: E402


def examples(tmp_path, source, **more):
    return open_examples(prepare(DataConfig(source=str(source), **more), tmp_path / "data"))


def dense(inputs, features):
    if isinstance(inputs, torch.Tensor):
        return inputs
    columns, starts, values = inputs
    rows = torch.repeat_interleave(torch.arange(len(starts)), torch.diff(starts, append=torch.tensor([len(columns)])))
    found = torch.zeros(len(starts), features)
    found[rows, columns] = values
    return found


@pytest.mark.parametrize("name", list(SHAPES))
def test_generated_data_has_the_shape_of_the_papers(tmp_path, name):
    found, shape = examples(tmp_path, name, examples=5000), SHAPES[name]
    assert (found.shape.examples, found.shape.features, found.shape.classes) == (5000, shape.features, shape.classes)
    assert found.shape.is_sparse == (shape.nonzeros is not None)
    assert found.shape.is_multilabel == (shape.labels is not None)
    if shape.nonzeros is not None:
        assert len(found.arrays["columns"]) / 5000 == pytest.approx(shape.nonzeros, rel=0.25)
    if shape.labels is not None:
        assert len(found.arrays["labels"]) / 5000 == pytest.approx(shape.labels, rel=0.05)
    if shape.positives is not None:
        assert float(found.arrays["y"].float().mean()) == pytest.approx(shape.positives, rel=0.2)


@pytest.mark.parametrize("name", list(SHAPES))
def test_the_same_seed_gives_the_same_examples_whatever_their_number(name):
    (few,) = generated(SHAPES[name], examples=100, seed=3)
    many, _ = generated(SHAPES[name], examples=2500, seed=3)
    (other,) = generated(SHAPES[name], examples=100, seed=4)

    def values(chunk):
        return chunk.x.values[: chunk.x.starts[100]] if isinstance(chunk.x, Csr) else chunk.x[:100]

    assert np.array_equal(values(few), values(many))
    assert not np.array_equal(values(few)[:50], values(other)[:50])


def test_a_bundled_set_is_the_one_of_scikit_learn(tmp_path):
    found = examples(tmp_path, "sklearn:digits")
    _, labels = load_digits(return_X_y=True)
    assert found.shape.examples == 1797
    assert np.bincount(found.arrays["y"]).tolist() == np.bincount(labels).tolist()
    assert float(found.arrays["x"].mean()) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("source", ["sklearn:digits", "rows.txt"])
def test_fewer_examples_than_are_asked_for_are_refused(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text("".join(f"{number % 2} 1:{number}\n" for number in range(1797)))
    assert examples(tmp_path, source, examples=1797, features=1).shape.examples == 1797
    with pytest.raises(UsageError, match=r"has 1,797 examples, fewer than the 1,798 of data\.examples"):
        examples(tmp_path, source, examples=1798, features=1)


def test_a_libsvm_file_is_read_as_scikit_learn_wrote_it(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 7)) * (rng.random((50, 7)) < 0.4), rng.choice([-1, 1], 50)
    dump_svmlight_file(x, y, str(tmp_path / "rows.libsvm"), zero_based=False)
    found = examples(tmp_path, tmp_path / "rows.libsvm", features=7)
    inputs, targets = found.batch(0, 50)
    assert np.allclose(dense(inputs, 7), x, atol=1e-5)
    assert targets.tolist() == [0 if label < 0 else 1 for label in y]


def test_an_extreme_classification_file_is_read_with_its_labels(tmp_path):
    (tmp_path / "rows.txt").write_text("3 4 5\n0,3 1:0.5 2:1\n 0:2\n4 3:-1.5\n")
    found = examples(tmp_path, tmp_path / "rows.txt")
    inputs, targets = found.batch(0, 3)
    assert (found.shape.features, found.shape.classes, found.shape.is_multilabel) == (4, 5, True)
    assert dense(inputs, 4).tolist() == [[0, 0.5, 1, 0], [2, 0, 0, 0], [0, 0, 0, -1.5]]
    assert targets.tolist() == [[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_large_files_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("perfguard.hetero.child.loaders._PIECE_BYTES", 64)
    (tmp_path / "rows.libsvm").write_text("".join(f"{n % 3} 1:{n} 5:1\n" for n in range(500)))
    found = examples(tmp_path, tmp_path / "rows.libsvm")
    assert (found.shape.examples, found.shape.features, found.shape.classes) == (500, 5, 3)
    assert dense(found.batch(497, 500)[0], 5)[:, 0].tolist() == [497, 498, 499]


@pytest.mark.parametrize("name", ["covtype", "w8a", "delicious"])
def test_every_nth_row_is_the_same_as_by_one(tmp_path, name):
    found = examples(tmp_path, name, examples=60)
    inputs, targets = found.batch(7, 50, 6)
    one_by_one = [found.batch(row, row + 1) for row in range(7, 50, 6)]
    features = found.shape.features
    assert torch.equal(dense(inputs, features), torch.cat([dense(each[0], features) for each in one_by_one]))
    assert torch.equal(targets, torch.cat([each[1] for each in one_by_one]))


def test_prepared_examples_are_made_once(tmp_path):
    config = DataConfig(source="w8a", examples=50)
    place = prepare(config, tmp_path)
    before = (place / "examples.json").stat().st_mtime_ns
    assert prepare(config, tmp_path) == place
    assert (place / "examples.json").stat().st_mtime_ns == before
    assert prepare(DataConfig(source="w8a", examples=51), tmp_path) != place
    assert len(list(tmp_path.iterdir())) == 2  # nothing else is left


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.libsvm", "", "a.libsvm holds no example"),
        ("a.libsvm", "\n\n", "a.libsvm holds no example"),
        ("a.libsvm", "1 1:2\n1 one:2\n", r"a.libsvm:2: not a line of this format: '1 one:2'"),
        ("a.libsvm", "1 1:2\nx 1:2\n", r"a.libsvm:2: not a line of this format: 'x 1:2'"),
        ("a.libsvm", "1 1:2\n1 1:nan\n", r"a.libsvm:2: a feature is not a finite number"),
        ("a.libsvm", "# none\n\n1 1:2\n1 0:2\n", "a.libsvm:4: a feature has the index 0; LIBSVM"),
        ("a.libsvm", "1 1:2\n1 9:2\n", "a.libsvm:2: feature 8 is out of range: features are numbered from 0 to 3"),
        ("a.libsvm", "1 1:1\n2 1:1\n3 1:1\n4 1:1\n", "has 4 classes, but classes = 3"),
        ("a.txt", "2 4 5\n1 1:1\n", "says that it has 2 examples, but holds 1"),
        ("a.txt", "1 4 5\n1 4:1\n", "a.txt:2: feature 4 is out of range: features are numbered from 0 to 3"),
        ("a.txt", "1 4 5\n5 3:1\n", "a.txt:2: label 5 is out of range: labels are numbered from 0 to 4"),
        ("a.libsvm", "1 1:2\n1 99999999999999999999:2\n", "a.libsvm:2: the line cannot be read"),
        ("a.libsvm", "1 1:2\n1 \0\0 1:2\n", "a.libsvm:2: binary data"),
        ("a.txt", "2 4 5\n1 3:1\n1;2 3:1\n", r"a.txt:3: not a line of this format: '1;2 3:1'"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    more = {"features": 4, "classes": 3} if name.endswith("libsvm") else {}
    with pytest.raises(UsageError, match=message):
        examples(tmp_path, tmp_path / name, **more)
    assert list((tmp_path / "data").glob("*")) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("covtyp", "data 'covtyp' is unknown; give a file, sklearn:digits, or one of the shapes covtype"),
        ("sklearn:olivetti", "scikit-learn brings sklearn:digits"),
        ("absent/rows.libsvm", "absent/rows.libsvm cannot be read: No such file"),
    ],
)
def test_unknown_data_is_refused(tmp_path, source, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        examples(tmp_path, source)


@pytest.mark.parametrize("name", SHAPES)
def test_the_size_of_generated_examples_is_known_before_they_are_written(tmp_path, name):
    place = prepare(DataConfig(source=name, examples=4096), tmp_path)
    written = sum(path.stat().st_size for path in place.glob("*.bin"))
    assert bytes_of(SHAPES[name], 4096) == pytest.approx(written, rel=0.2)


def test_examples_that_do_not_fit_on_the_disk_are_not_begun(tmp_path):
    with pytest.raises(
        HostUnfitError, match=r"999,999,999,999 examples of covtype take about 224,000.0 GB, and .* has"
    ):
        prepare(DataConfig(source="covtype", examples=999_999_999_999), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_wish_to_end_stops_the_generation_and_leaves_nothing(tmp_path):
    asked = iter((False, False, True))
    with pytest.raises(InterruptedRunError):
        prepare(DataConfig(source="covtype", examples=100_000), tmp_path, lambda: next(asked))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(HostUnfitError, match="examples cannot be written"):
        examples(tmp_path, "w8a", examples=10)
