"""Records of PyTorch's benchmark database and Bencher's metrics: read as documented, written and read back."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfguard.errors import StoreError
from perfguard.integrations.formats import charts, pytorch_records
from perfguard.integrations.formats.importing import comparison_objection
from perfguard.integrations.formats.suites import process_medians
from perfguard.records.facts import fact
from tests.changed_values import replace
from tests.interchange_files import BENCHER, PYTORCH, measured, read, recorded, series_of, suite_of

BMF_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "number"},
                        "lower_value": {"type": "number"},
                        "upper_value": {"type": "number"},
                    },
                    "required": ["value"],
                }
            },
        }
    },
}
"""Of https://bencher.dev/bmf.json."""


def test_records_of_one_model_are_told_apart_by_what_they_say_of_themselves():
    suite = read(PYTORCH)
    counted, timed = suite.series
    assert counted.name == (
        "pr_time_benchmarks/add_loop[mode=training,dtype=bf16,type=add_loop,backend=eager,is_dynamic=False,device=cpu,"
        "description=a loop]"
    )
    assert (counted.unit, counted.summary.median) == ("", 3086359081.0)
    assert counted.what_is_missing == (fact("import.no_unit", kept_in=None),)
    assert timed.name == "inductor/resnet50[device=cpu]"


def test_a_time_is_known_by_its_name_and_a_unit_in_brackets():
    timed = read(PYTORCH).series[1]
    assert (timed.metric, timed.unit) == ("avg_latency", "s")
    assert timed.samples[0].values == pytest.approx((0.0125, 0.0127))
    assert comparison_objection(timed).code == "import.unknown_processes"


@pytest.mark.parametrize("name", ["tokens(s)", "speedup(ms)", "latency", "time [ms]", "(ms)"])
def test_what_is_not_surely_a_time_has_no_unit(name):
    record = {"benchmark": {"name": "b"}, "model": {"name": "m"}, "metric": {"name": name, "benchmark_values": [1.5]}}
    (series,) = read([record]).series
    assert (series.unit, series.metric, series.summary.median) == ("", name, 1.5)


def test_records_may_come_one_a_line_and_alone():
    (alone,) = read(PYTORCH[0]).series
    assert alone.name == read(PYTORCH).series[0].name


def test_a_record_without_values_is_left_out_and_said_so():
    suite = read([PYTORCH[1], {**PYTORCH[0], "metric": {"name": "loss", "benchmark_values": []}}])
    assert suite.what_is_missing == (fact("import.left_out_empty", benchmarks=1, names=("add_loop loss",)),)


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_the_medians_of_a_recorded_runs_processes_come_back_exactly(tmp_path, arm):
    run = replace(recorded("paired", tmp_path), arm=arm)
    suite = run.suite
    back = read(json.loads(pytorch_records.write(run)))
    assert [series.name for series in back.series] == [series.name for series in suite.series]
    assert (back.torch, back.machine_id) == (suite.torch, suite.machine_id)
    for before, after in zip(suite.series, back.series, strict=True):
        assert tuple(process.values[0] for process in after.samples) == process_medians(before.samples)
        assert (after.unit, after.parameters, after.has_processes) == ("s", before.parameters, True)


def test_a_record_has_the_fields_that_the_database_has_columns_for(tmp_path):
    run = recorded("rounds", tmp_path)
    record = json.loads(pytorch_records.write(run))[0]
    assert record["benchmark"] == {
        "name": "perfguard",
        "mode": "training",
        "dtype": "bf16",
        "extra_info": {"suite": "example", "arm": "candidate", "run": "20260921T142640-rounds"},
    }
    assert record["model"]["extra_info"] == {"batch": "8", "dtype": "bf16"}
    assert record["model"]["type"] == "step"
    assert record["runners"][0].keys() == {"name", "type", "cpu_info", "cpu_count"}
    assert record["dependencies"]["torch"]["version"] == "2.8.0+cpu"


def test_latency_is_in_nanoseconds_and_other_measures_keep_their_own_unit():
    suite = read(BENCHER)
    by_metric = {series.metric: series for series in suite.series}
    assert by_metric["time"].summary.median == pytest.approx(88e-9)
    assert (by_metric["time"].summary.lower, by_metric["time"].summary.upper) == pytest.approx((87.42e-9, 88.88e-9))
    assert (by_metric["throughput"].unit, by_metric["throughput"].summary.median) == ("1/s", 5.55)
    assert (by_metric["file-size"].unit, by_metric["file-size"].name) == ("B", "my_binary")
    assert all(series.samples is None and series.n is None for series in suite.series)
    assert suite.what_is_missing == (fact("import.bare_format"),)


@given(st.lists(st.floats(min_value=1e-9, max_value=1e3), min_size=1, max_size=9))
def test_a_median_survives_bencher_and_lies_between_its_ends(medians):
    suite = suite_of(measured("x[a=1]", *((value,) for value in medians)))
    written = json.loads(charts.write_bencher(suite))
    jsonschema.validate(written, BMF_SCHEMA)
    back = series_of(read(written), "x[a=1]").summary
    assert back.median == pytest.approx(suite.series[0].summary.median)
    if len(medians) > 1:
        assert back.lower <= back.median * (1 + 1e-12)
        assert back.median <= back.upper * (1 + 1e-12)
    else:
        assert back.lower is None


def test_nothing_to_write_is_said(tmp_path):
    nothing = suite_of(measured("x", (5.0,), unit="B"))
    with pytest.raises(StoreError, match="holds no times"):
        charts.write_bencher(nothing)
    with pytest.raises(StoreError, match="holds no times"):
        pytorch_records.write(replace(recorded("rounds", tmp_path), arms={"candidate": nothing}))
