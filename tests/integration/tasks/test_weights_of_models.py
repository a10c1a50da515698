"""Weights that users bring: those that fit are loaded, all others are refused in a sentence."""

from __future__ import annotations

import pytest

from perfguard.errors import UsageError
from perfguard.records.tasks import DataPart, DataSource, ModelSource

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch

from perfguard.tasks.child.examples import load_examples
from perfguard.tasks.child.models import load_model

pytestmark = pytest.mark.torch

DIGITS = DataSource(source="sklearn:digits", parts={DataPart.FULL: 8})


def loaded(folder, **fields):
    source = ModelSource(architecture="digits_cnn", weights="mine.pt", **fields)
    return load_model(source, load_examples(DIGITS, DataPart.FULL, folder), data_folder=folder, cache=folder)


@pytest.fixture
def state(tmp_path):
    """The weights of a model of this architecture, which are in the folder."""
    source = ModelSource(architecture="digits_cnn")
    examples = load_examples(DIGITS, DataPart.FULL, tmp_path)
    found = load_model(source, examples, data_folder=tmp_path, cache=tmp_path).module.state_dict()
    torch.save(found, tmp_path / "mine.pt")
    return found


def test_weights_that_fit_are_loaded(state, tmp_path):
    model = loaded(tmp_path)
    assert model.has_real_weights
    assert all(torch.equal(value, state[name]) for name, value in model.module.state_dict().items())


def test_weights_of_other_shapes_are_named(state, tmp_path):
    name = next(iter(state))
    torch.save({**state, name: torch.zeros(3, 3)}, tmp_path / "mine.pt")
    with pytest.raises(UsageError, match=rf"mine\.pt does not fit the model: .*{name}"):
        loaded(tmp_path)


def test_a_file_of_weights_that_was_cut_off_is_refused(state, tmp_path):
    path = tmp_path / "mine.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match="cannot be read as weights"):
        loaded(tmp_path)


def test_weights_with_another_checksum_are_refused(state, tmp_path):
    with pytest.raises(UsageError, match="the task wants 0000"):
        loaded(tmp_path, sha256="0" * 64)


def test_missing_weights_say_where_they_belong(tmp_path):
    with pytest.raises(UsageError, match=r"mine\.pt are missing; put them there"):
        loaded(tmp_path)
