"""Files of pytest-benchmark and Google Benchmark, which are only read."""

from __future__ import annotations

import copy

import pytest

from perfguard.errors import StoreError
from perfguard.integrations.formats.importing import comparison_objection
from perfguard.records.facts import fact
from tests.interchange_files import GOOGLE, PYTEST, read, series_of

TEST = "tests/test_perf.py::test_sort[100-fast]"


def google(**fields):
    document = copy.deepcopy(GOOGLE)
    document["benchmarks"] = [document["benchmarks"][0] | fields]
    return document


def test_rounds_are_seconds_of_one_iteration_from_one_process():
    suite = read(PYTEST)
    found = series_of(suite, TEST)
    assert found.samples[0].values == (2.2e-05, 1.6e-05, 1.5e-05, 1.7e-05, 1.4e-05)
    assert (found.n, found.inner_loops, found.has_processes) == (5, 2, True)
    assert found.parameters == (("size", "100"), ("kind", "fast"))
    assert found.summary.median == pytest.approx(1.6e-05)
    assert (suite.version, suite.machine, suite.commit, suite.python) == ("5.1.0", "Example CPU", "a" * 40, "3.12.4")
    assert comparison_objection(found).code == "import.too_few_processes"


def test_a_saved_file_without_timings_has_its_summary_only():
    found = series_of(read(PYTEST), "tests/test_perf.py::test_saved_without_data")
    assert found.samples is None
    assert (found.n, found.summary.median, found.summary.q25) == (102523, 4.7e-06, 4.6e-06)
    assert found.what_is_missing == (fact("import.no_samples", option="--benchmark-json or --benchmark-save-data"),)
    assert comparison_objection(found).code == "import.only_a_summary"


def test_a_test_without_rounds_is_left_out_and_said_so():
    document = copy.deepcopy(PYTEST)
    document["benchmarks"][1]["stats"] = {"rounds": 0, "data": []}
    assert read(document).what_is_missing == (
        fact("import.left_out_empty", benchmarks=1, names=("tests/test_perf.py::test_saved_without_data",)),
    )


def test_the_name_of_the_cpu_is_found_as_older_versions_write_it():
    assert read(PYTEST | {"machine_info": {"cpu": {"brand": "Old CPU"}}}).machine == "Old CPU"
    assert read(PYTEST | {"machine_info": {"machine": "x86_64", "cpu": 3}}).machine == "x86_64"


def test_only_iterations_are_read_and_repetitions_joined():
    suite = read(GOOGLE)
    found = series_of(suite, "BM_Add/8/repeats:3")
    assert found.samples[0].values == pytest.approx((3.5e-9, 3.7e-9, 3.6e-9))
    assert (found.n, found.inner_loops, found.parameters) == (3, 1000, (("threads", "1"),))
    assert [series.name for series in suite.series] == ["BM_Add/8/repeats:3", "BM_Slow"]
    assert (suite.version, suite.machine) == ("v1.8.3", "8 CPUs of 2600 MHz")


def test_units_of_time_become_seconds():
    slow = series_of(read(GOOGLE), "BM_Slow")
    assert slow.summary.median == pytest.approx(0.0025)
    assert slow.what_is_missing == (fact("import.one_repetition"),)


@pytest.mark.parametrize(("unit", "seconds"), [("ns", 3.5e-9), ("us", 3.5e-6), ("ms", 3.5e-3), ("s", 3.5)])
def test_each_unit_that_the_library_writes_is_known(unit, seconds):
    assert read(google(time_unit=unit)).series[0].summary.median == pytest.approx(seconds)


def test_what_failed_and_what_the_tool_warns_of_is_said():
    assert read(GOOGLE).what_is_missing == (
        fact("import.left_out_failed", benchmarks=1, names=("BM_Broken",)),
        fact("import.frequency_scaling"),
    )
    document = google()
    document["context"] = {"library_build_type": "debug"}
    assert read(document).what_is_missing == (fact("import.debug_build"),)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"run_type": None}, "1.5 or later"),
        ({"time_unit": "fortnights"}, "real_time"),
        ({"real_time": None}, "real_time"),
        ({"real_time": float("nan")}, "value of nan"),
        ({"real_time": float("inf")}, "value of inf"),
        ({"real_time": 0.0}, "value of 0.0"),
        ({"real_time": "3"}, "not valid"),
    ],
)
def test_a_row_that_is_no_measurement_is_refused(fields, said):
    with pytest.raises(StoreError, match=said):
        read(google(**fields))


@pytest.mark.parametrize("run_name", [None, ""])
def test_a_row_without_a_name_of_its_run_goes_by_its_own(run_name):
    assert read(google(run_name=run_name)).series[0].name == "BM_Add/8/repeats:3"
