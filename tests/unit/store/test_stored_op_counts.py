from __future__ import annotations

import json

import pytest

from perfguard.errors import StoreError
from perfguard.store.op_counts import load_op_counts, op_counts_file, op_counts_text, save_op_counts
from tests.op_count_rows import allocation, compiled, conv, counts, op, ops

FIRST = counts(ops("conv2d relu", 3), conv("jit:avx2"), allocation(2, 4096), case_id="step.a")
SECOND = counts(compiled("graph_break", 'call of "print" → x'), case_id="step.b", torch="2.12.0")


@pytest.fixture
def path(tmp_path):
    path = op_counts_file(tmp_path / "baselines" / "machine" / "quick")
    save_op_counts(path, [SECOND, FIRST])
    return path


def edited(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def test_what_was_saved_is_loaded(path):
    assert path.name == "census.json"
    assert load_op_counts(path) == {"step.a": FIRST, "step.b": SECOND}


def test_a_baseline_without_op_counts_has_none(tmp_path):
    assert load_op_counts(op_counts_file(tmp_path)) == {}


def test_no_op_counts_at_all_can_be_stored(tmp_path):
    save_op_counts(tmp_path / "census.json", [])
    assert load_op_counts(tmp_path / "census.json") == {}


def test_saving_again_in_another_order_gives_the_same_bytes(path):
    before = path.read_bytes()
    save_op_counts(path, [FIRST, SECOND])
    assert path.read_bytes() == before


def test_a_changed_count_changes_one_line(path):
    more = counts(op("conv2d", 3), op("relu", 4), conv("jit:avx2"), allocation(2, 4096), case_id="step.a")
    before, after = (op_counts_text(found).splitlines() for found in ([FIRST, SECOND], [more, SECOND]))
    assert len(before) == len(after)
    assert sum(was != now for was, now in zip(before, after, strict=True)) == 1


def test_a_line_names_the_columns(path):
    assert json.loads(path.read_text())["columns"][:4] == ["kind", "phase", "module", "name"]


def test_rows_that_a_person_moved_are_sorted_when_read(path):
    edited(path, lambda document: document["cases"]["step.a"]["rows"].reverse())
    assert load_op_counts(path)["step.a"] == FIRST


@pytest.mark.parametrize("text", ["", "{", "[1, 2", "null", "[]", "3", "{}", '{"schema": 1}', '{"schema": true}'])
def test_a_corrupt_file_is_named_with_the_way_out(path, text):
    path.write_text(text)
    with pytest.raises(StoreError) as refused:
        load_op_counts(path)
    assert str(path) in str(refused.value)


def test_bytes_that_are_no_text_are_corrupt(path):
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(StoreError, match="corrupt"):
        load_op_counts(path)


def test_another_schema_is_told(path):
    edited(path, lambda document: document.update(schema=2))
    with pytest.raises(StoreError, match="schema 2, this perfguard reads 1"):
        load_op_counts(path)


def test_other_columns_are_corrupt(path):
    edited(path, lambda document: document["columns"].reverse())
    with pytest.raises(StoreError, match="columns"):
        load_op_counts(path)


@pytest.mark.parametrize(
    ("column", "value"), [(0, "ops"), (1, "sideways"), (3, None), (6, "3"), (6, 0), (6, True), (7, -1), (6, 1.5)]
)
def test_a_row_that_cannot_be_is_corrupt(path, column, value):
    def spoil(document):
        document["cases"]["step.a"]["rows"][0][column] = value

    with pytest.raises(StoreError) as refused:
        load_op_counts(edited(path, spoil))
    assert str(path) in str(refused.value)


def test_a_row_of_another_length_is_corrupt(path):
    with pytest.raises(StoreError, match="not valid"):
        load_op_counts(edited(path, lambda document: document["cases"]["step.a"]["rows"][0].pop()))


def test_a_row_that_stands_there_twice_is_corrupt(path):
    def merge(document):
        document["cases"]["step.a"]["rows"].append(document["cases"]["step.a"]["rows"][0])

    with pytest.raises(StoreError, match="stands there twice"):
        load_op_counts(edited(path, merge))


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        save_op_counts(tmp_path / "file" / "census.json", [FIRST])
