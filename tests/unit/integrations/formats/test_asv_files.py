"""asv's results files: read as asv writes them, and written with the columns that it reads."""

from __future__ import annotations

import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.integrations.formats import asv_results
from perfguard.integrations.formats.asv_results import median_interval
from perfguard.records.facts import fact
from tests.changed_values import replace
from tests.interchange_files import ASV, read, recorded, series_of

COMMIT = "cb63287e63db10ce3eb0f3b8c279fd995678d0ae"


def changed(name, row):
    document = copy.deepcopy(ASV)
    document["results"] = {name: row}
    return document


def test_a_benchmark_without_samples_has_its_summary_only():
    suite = read(ASV)
    found = series_of(suite, "benchmarks.TimeSuite.time_insertion")
    assert found.samples is None
    assert (found.unit, found.n, found.inner_loops) == ("s", 10, 22921)
    assert (found.summary.median, found.summary.lower, found.summary.upper) == (
        4.789694385535404e-07,
        4.7191e-07,
        4.8881e-07,
    )
    assert found.what_is_missing == (fact("import.no_samples", option="asv run --record-samples"),)
    assert (suite.commit, suite.machine, suite.python) == (COMMIT, "Example CPU", "3.11")


def test_each_combination_of_parameters_is_a_series_the_first_one_slowest():
    suite = read(ASV)
    names = [series.name for series in suite.series if "time_slice" in series.name]
    assert names == ["remote.SliceBenchmark.time_slice('a', 1)", "remote.SliceBenchmark.time_slice('b', 2)"]
    first = series_of(suite, names[0])
    assert first.parameters == (("param1", "'a'"), ("param2", "1"))
    assert first.samples[0].values == (0.8071024999953806, 0.9324163000565022, 0.5638924000086263)
    assert not first.has_processes


def test_what_failed_or_was_skipped_is_left_out_and_said_so():
    (missing,) = read(ASV).what_is_missing
    assert (missing.code, missing.values["benchmarks"]) == ("import.left_out_failed", 3)
    assert any("time_slice('a', 2)" in name for name in missing.values["names"])


def test_memory_is_in_bytes_and_what_is_tracked_has_no_known_unit():
    suite = read(ASV)
    assert series_of(suite, "benchmarks.MemSuite.peakmem_list").unit == "B"
    tracked = series_of(suite, "benchmarks.track_losses")
    assert (tracked.unit, tracked.metric) == ("", "track_losses")
    assert fact("import.no_unit", kept_in="benchmarks.json") in tracked.what_is_missing


@pytest.mark.parametrize("version", [1, 3, None, "2", True])
def test_another_version_is_refused_with_what_rewrites_it(version):
    with pytest.raises(StoreError, match="asv update"):
        read(ASV | {"version": version}, "asv")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([[1.0, 2.0], []], "2 results for 1 combinations"),
        ([[1.0], [["a", "b"]]], "1 results for 2 combinations"),
        ([[1.0], [["a"] * 1000] * 40], "1 results for"),
        ([3.0, []], "no list of results"),
        ([[1.0], "ab"], "no list of lists"),
        ([[-1.0], []], "value of -1.0"),
        ([[float("inf")], []], "value of inf"),
        ([[10**400], []], "not valid: Number out of range"),
        ([[1e300], []], "value of 1e\\+300"),
        ([[1.0], [], "1", 0, 0, 0, 0, 0, 0, 0, 0, ["x"]], "not valid"),
        ([[1.0], [], "1", 0, 0, 0, 0, 0, 0, 0, 0, [[1.0, float("nan")]]], "value of nan"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(row, said):
    with pytest.raises(StoreError, match=said):
        read(changed("b.time_x", row), "asv")


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_recorded_run_comes_back_with_the_same_values(tmp_path, arm):
    run = replace(recorded("paired", tmp_path, commit=COMMIT), arm=arm)
    suite = run.suite
    back = read(json.loads(asv_results.write(run)))
    assert (back.commit, back.machine_id, back.torch) == (COMMIT, suite.machine_id, suite.torch)
    assert [series.name for series in back.series] == [series.name for series in suite.series]
    for before, after in zip(suite.series, back.series, strict=True):
        assert after.samples[0].values == tuple(value for process in before.samples for value in process.values)
        assert (after.unit, after.n, after.inner_loops) == (before.unit, before.n, before.inner_loops)
        assert not after.has_processes


@pytest.mark.parametrize("commit", [None, "", "HEAD", "../../x", "abc"])
def test_asv_needs_a_commit(tmp_path, commit):
    run = recorded("rounds", tmp_path, commit=commit)
    with pytest.raises(StoreError, match="--commit"):
        asv_results.write(run)


def test_columns_are_those_that_asv_knows():
    assert list(asv_results.COLUMNS) == ASV["result_columns"]


@pytest.mark.parametrize(("n", "rank"), [(8, 1), (10, 1), (11, 1), (12, 2), (20, 4)])
def test_the_interval_of_a_median_is_that_of_the_sign_test(n, rank):
    """Ranks as in tables of the sign test at 1 %, two-sided."""
    assert median_interval([float(value) for value in range(n)]) == (rank - 1, n - rank)


@given(st.integers(min_value=1, max_value=7))
def test_with_too_few_values_an_interval_has_no_ends(n):
    assert median_interval([1.0] * n) == (-math.inf, math.inf)
