from __future__ import annotations

import pytest

from perfguard.errors import StoreError, UsageError
from perfguard.store.baselines import FILES, BaselineStore, anchor_place, files_of, freeze, has_anchor, remove

OLD = {name: f"old {name}".encode() for name in FILES}
NEW = {name: f"new {name}".encode() for name in FILES}


@pytest.fixture
def place(tmp_path):
    directory = tmp_path / "baselines" / "intel-x-1" / "pr"
    directory.mkdir(parents=True)
    for name, content in OLD.items():
        (directory / name).write_bytes(content)
    return directory


def test_what_was_frozen_is_read_back_byte_for_byte(place):
    made = freeze(files_of(place), place, replace=False)
    assert made == anchor_place(place)
    assert files_of(made) == OLD
    assert sorted(path.name for path in place.iterdir()) == sorted([*FILES, "anchor"])


def test_op_counts_is_frozen_with_the_rest(place):
    (place / "census.json").write_bytes(b"counted")
    made = freeze(files_of(place), place, replace=False)
    assert files_of(made) == {**OLD, "census.json": b"counted"}


def test_an_anchor_stays_unless_it_is_to_be_replaced(place):
    freeze(OLD, place, replace=False)
    with pytest.raises(UsageError, match=r"anchor exists: .*--replace"):
        freeze(NEW, place, replace=False)
    assert files_of(anchor_place(place)) == OLD
    freeze(NEW, place, replace=True)
    assert files_of(anchor_place(place)) == NEW
    assert sorted(path.name for path in place.iterdir()) == sorted([*FILES, "anchor"])


def test_an_anchor_that_cannot_be_written_leaves_the_old_one(place):
    freeze(OLD, place, replace=False)
    with pytest.raises(KeyError):
        freeze({"info.json": b""}, place, replace=True)
    assert files_of(anchor_place(place)) == OLD
    assert sorted(path.name for path in place.iterdir()) == sorted([*FILES, "anchor"])


def test_a_file_where_the_folder_of_baselines_should_be_is_a_sentence(tmp_path):
    (tmp_path / "baselines").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        freeze(NEW, tmp_path / "baselines" / "m" / "s", replace=False)


def test_a_removed_anchor_is_gone_and_the_baseline_stays(place):
    freeze(OLD, place, replace=False)
    remove(place)
    assert not has_anchor(place)
    assert files_of(place) == OLD
    with pytest.raises(StoreError, match="there is no anchor at"):
        remove(place)


def test_a_missing_file_is_named(place):
    (place / "noise.json").unlink()
    with pytest.raises(StoreError, match=r"noise\.json cannot be read \(No such file"):
        files_of(place)


def test_an_anchor_is_no_baseline_of_a_further_suite(place):
    freeze(OLD, place, replace=False)
    assert BaselineStore(place.parent.parent).stored() == (place,)
