from __future__ import annotations

import json

import pyperf
import pytest

from perfguard.errors import StoreError
from perfguard.store.files import remove_tree, write_text
from perfguard.store.pyperf_files import PRIVATE_METADATA, join_suites, read_suite, write_suite


def suite(*names, value=0.5, **metadata):
    return pyperf.BenchmarkSuite(
        [
            pyperf.Benchmark([pyperf.Run([value], metadata={"name": name, **metadata}, collect_metadata=False)])
            for name in names
        ]
    )


def dumped(path, *names, **fields):
    suite(*names, **fields).dump(str(path))
    return path


def test_the_runs_of_all_files_are_joined_by_name(tmp_path):
    paths = [dumped(tmp_path / "2.json", "x", value=2.0), dumped(tmp_path / "1.json", "x", "y", value=1.0)]
    joined = join_suites(paths, skipped=pytest.fail)
    assert {found.get_name(): found.get_values() for found in joined.get_benchmarks()} == {"x": (1.0, 2.0), "y": (1.0,)}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", "[" * 200_000, '{"benchmarks": [{}], "version": "1.0"}', "\0\0"]
)
def test_a_file_that_a_killed_worker_left_is_skipped_and_said_so(tmp_path, text):
    good, bad = dumped(tmp_path / "1.json", "x"), tmp_path / "2.json"
    bad.write_text(text)
    said = []
    joined = join_suites([good, bad], skipped=said.append)
    assert joined.get_benchmark_names() == ["x"]
    (sentence,) = said
    assert sentence.startswith("2.json is not a complete pyperf file")


def test_a_file_cut_off_anywhere_is_skipped(tmp_path):
    whole = dumped(tmp_path / "1.json", "x").read_text()
    for length in range(0, len(whole) - 1, 7):
        (tmp_path / "2.json").write_text(whole[:length])
        said = []
        join_suites([tmp_path / "1.json", tmp_path / "2.json"], skipped=said.append)
        assert len(said) == 1


def test_no_file_at_all_is_no_suite(tmp_path):
    assert join_suites([], skipped=pytest.fail) is None
    assert join_suites([tmp_path / "absent.json"], skipped=lambda _: None) is None


def test_a_public_file_leaves_private_facts_out_and_stays_readable(tmp_path):
    private = dict.fromkeys(("hostname", "platform"), "private")
    assert private.keys() <= set(PRIVATE_METADATA)
    found = suite("x", python_version="3.11", **private)
    write_suite(found, tmp_path / "public.json", public=True)
    write_suite(found, tmp_path / "own.json")
    assert "private" not in (tmp_path / "public.json").read_text()
    assert "private" in (tmp_path / "own.json").read_text()
    assert read_suite(tmp_path / "public.json").get_benchmark("x").get_values() == (0.5,)
    assert json.loads((tmp_path / "public.json").read_text())["metadata"]["python_version"] == "3.11"


@pytest.mark.parametrize("text", ["", "[]", "3", "null", '{"benchmarks": 3}'])
def test_what_is_not_pyperfs_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StoreError, match=r"x\.json is not a pyperf file"):
        read_suite(tmp_path / "x.json")


def test_a_file_is_replaced_in_one_step_and_nothing_else_is_left(tmp_path):
    write_text(tmp_path / "new" / "x.txt", "first")
    write_text(tmp_path / "new" / "x.txt", "second")
    assert [(path.name, path.read_text()) for path in (tmp_path / "new").iterdir()] == [("x.txt", "second")]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    write_text(tmp_path / "x.txt", "first")
    with pytest.raises(StoreError, match="cannot be written"):
        write_text(tmp_path / "x.txt" / "below", "second")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "x.txt", "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.txt", "first")]


def test_files_that_do_not_fit_together_are_left_out_and_said_so(tmp_path):
    said = []
    paths = [dumped(tmp_path / "1.json", "x", unit="byte", value=5), dumped(tmp_path / "2.json", "x", unit="second")]
    assert join_suites(paths, skipped=said.append) is None
    assert len(said) == 1


def test_a_folder_is_removed_however_deep_it_is(tmp_path, deep_folders):
    deep_folders(tmp_path / "deep")
    remove_tree(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()
