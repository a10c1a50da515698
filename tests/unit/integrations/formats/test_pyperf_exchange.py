"""pyperf's JSON: read as pyperf writes it, written so that pyperf reads it, and back again."""

from __future__ import annotations

import copy
import json

import pyperf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.integrations.formats import pyperf_json
from perfguard.records.facts import fact
from perfguard.store import baselines
from tests.interchange_files import PYPERF, measured, read, recorded, series_of, suite_of

TIMES = st.floats(min_value=1e-9, max_value=1e3)
PROCESSES = st.lists(st.lists(TIMES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=4)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)


def changed(**fields):
    return copy.deepcopy(PYPERF) | fields


def test_processes_values_and_facts_are_read_and_calibrating_runs_passed_over():
    suite = read(PYPERF)
    sort = series_of(suite, "sort")
    assert [process.values for process in sort.samples] == [(2.0e-05, 2.2e-05, 2.1e-05), (2.4e-05, 2.3e-05, 2.5e-05)]
    assert (sort.unit, sort.metric, sort.n, sort.inner_loops, sort.has_processes) == ("s", "time", 6, 1024, True)
    assert sort.summary.median == pytest.approx(2.25e-05)
    assert (suite.tool, suite.version, suite.machine) == ("pyperf", "2.10.0", "Example CPU")
    assert suite.python == "3.12.4 (64-bit)"


def test_it_reads_the_same_values_as_pyperf_itself():
    theirs = pyperf.BenchmarkSuite.loads(json.dumps(PYPERF))
    for series in read(PYPERF).series:
        values = [value for process in series.samples for value in process.values]
        assert tuple(values) == theirs.get_benchmark(series.name).get_values()


def test_a_unit_that_is_no_time_is_kept_apart():
    peak = series_of(read(PYPERF), "peak")
    assert (peak.unit, peak.metric, peak.summary.median) == ("B", "bytes", 1048576)


def test_a_benchmark_that_was_only_calibrated_is_left_out_and_said_so():
    document = changed()
    document["benchmarks"][0]["runs"][1:] = []
    suite = read(document)
    assert [series.name for series in suite.series] == ["peak"]
    assert suite.what_is_missing == (fact("import.left_out_calibrations", benchmarks=1, names=("sort",)),)


@pytest.mark.parametrize("version", [5, 6, "1.1", None, True, [1]])
def test_another_version_is_refused_with_what_rewrites_it(version):
    with pytest.raises(StoreError, match="pyperf convert"):
        read(changed(version=version), "pyperf")


@given(st.lists(st.tuples(NAMES, PROCESSES), min_size=1, max_size=4, unique_by=lambda pair: pair[0]))
def test_what_is_written_is_read_back_and_read_by_pyperf(series):
    suite = suite_of(*(measured(name, *processes) for name, processes in series))
    written = pyperf_json.write(suite)
    back = pyperf_json.read(json.loads(written), source="a.json")
    assert back.series == suite.series
    theirs = pyperf.BenchmarkSuite.loads(written.decode())
    assert theirs.get_benchmark_names() == [name for name, _ in series]
    for name, processes in series:
        assert [run.values for run in theirs.get_benchmark(name).get_runs()] == processes


def test_the_control_workload_goes_with_its_process_under_the_key_of_stored_baselines():
    assert (pyperf_json.CONTROL_KEY, pyperf_json.STARTED_KEY) == (baselines.CONTROL_KEY, baselines.STARTED_KEY)
    suite = suite_of(measured("x", (1.0,), (1.1,), control_s=0.002))
    back = pyperf_json.read(json.loads(pyperf_json.write(suite)), source="a.json")
    assert [process.control_s for process in back.series[0].samples] == [(0.002,), (0.002,)]


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_both_arms_of_a_recorded_run_can_be_read_by_pyperf(tmp_path, arm):
    suite = recorded("paired", tmp_path).arms[arm]
    theirs = pyperf.BenchmarkSuite.loads(pyperf_json.write(suite).decode())
    assert theirs.get_benchmark_names() == [series.name for series in suite.series]
    slowest = theirs.get_benchmark("step.resnet[batch=8,dtype=bf16]")
    assert slowest.get_nrun() == len(suite.series[0].samples)
    assert slowest.get_dates() is not None
    assert "Example CPU" in slowest.get_metadata()["cpu_model_name"]
    assert slowest.median() == pytest.approx(suite.series[0].summary.median, rel=0.05)


def test_nothing_to_write_is_said():
    with pytest.raises(StoreError, match="holds no raw times"):
        pyperf_json.write(suite_of(measured("x", (5.0,), unit="B")))
