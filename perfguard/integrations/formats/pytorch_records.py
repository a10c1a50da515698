"""Records of PyTorch's OSS benchmark database, version 3: what its uploads and the HUD take.

A list of records, or records one a line; each has a benchmark, a model and one metric with its values. Source:
clickhouse_db_schema/oss_ci_benchmark_v3 of pytorch/test-infra. Commit, branch and job are added by the upload.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from perfguard import __version__
from perfguard.codec import from_builtins
from perfguard.integrations.formats import reading, suites
from perfguard.records.case_names import split_case_id
from perfguard.records.facts import fact
from perfguard.units import printable

OUR_BENCHMARK = "perfguard"
_METRIC = "time(s)"
_PER_PROCESS = "median of one process"
_TIME_METRIC = re.compile(r"(?i)^(?P<name>.*(time|latency|duration).*?)[ _]?\((?P<unit>s|ms|us|µs|ns)\)$")


class _Benchmark(msgspec.Struct):
    name: str
    mode: str | None = None
    dtype: str | None = None
    extra_info: dict[str, Any] | None = None


class _Model(msgspec.Struct):
    name: str
    type: str | None = None
    backend: str | None = None


class _Metric(msgspec.Struct):
    name: str
    benchmark_values: list[float]
    extra_info: dict[str, Any] | None = None


class _Record(msgspec.Struct):
    benchmark: _Benchmark
    model: _Model
    metric: _Metric
    runners: list[dict[str, Any]] | None = None
    dependencies: dict[str, Any] | None = None


def read(document: Any, *, source: str) -> suites.ImportedSuite:
    """All records of a file."""
    records = from_builtins(document if isinstance(document, list) else [document], list[_Record], source=source)
    empty = [f"{record.model.name} {record.metric.name}" for record in records if not record.metric.benchmark_values]
    first = records[0] if records else None
    runner = first.runners[0] if first and first.runners else {}
    torch = (first.dependencies or {}).get("torch") if first else None
    return reading.checked_suite(
        "pytorch",
        source,
        [_series(record, source=source) for record in records if record.metric.benchmark_values],
        version="v3",
        machine=reading.text_or_none(runner.get("cpu_info"), runner.get("type")),
        machine_id=runner.get("name") if first is not None and first.benchmark.name == OUR_BENCHMARK else None,
        torch=torch.get("version") if isinstance(torch, dict) else None,
        what_is_missing=reading.left_out_empty(empty),
    )


def _series(record: _Record, *, source: str) -> suites.ImportedSeries:
    name, parameters = _named(record, source=source)
    metric, unit, scale = _metric(record.metric.name)
    values = reading.checked_values(
        (value * scale for value in record.metric.benchmark_values), name=name, source=source, unit=unit
    )
    is_per_process = (record.metric.extra_info or {}).get("values") == _PER_PROCESS
    return suites.series_of_samples(
        name,
        [suites.ProcessSamples(values=of_one) for of_one in (zip(values) if is_per_process else (values,))],
        parameters=parameters,
        metric=reading.checked_name(metric, source=source, what="a metric"),
        unit=unit,
        has_processes=is_per_process,
        what_is_missing=() if unit else (fact("import.no_unit", kept_in=None),),
    )


def _named(record: _Record, *, source: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Name and parameters: of the case where perfguard wrote it, else benchmark, model and all that varies."""
    benchmark, model = record.benchmark, record.model
    reading.checked_name(model.name, source=source)
    if benchmark.name == OUR_BENCHMARK:
        return model.name, split_case_id(model.name).parameters
    facts = {"mode": benchmark.mode, "dtype": benchmark.dtype, "type": model.type, "backend": model.backend}
    facts |= benchmark.extra_info or {}
    parameters = reading.parameters_of({key: value for key, value in facts.items() if value not in (None, "")})
    chosen = ",".join(f"{key}={value}" for key, value in parameters)
    shown = f"{reading.checked_name(benchmark.name, source=source)}/{model.name}"
    return (f"{shown}[{chosen}]" if chosen else shown)[: reading.MAX_NAME], parameters


def _metric(name: str) -> tuple[str, str, float]:
    """Metric, unit and what turns a value into it; a time is known by its name and a unit in brackets."""
    if name == _METRIC:
        return suites.TIME, suites.SECONDS, 1.0
    found = _TIME_METRIC.match(name)
    return (found["name"], suites.SECONDS, reading.SECONDS_IN[found["unit"]]) if found else (name, "", 1.0)


def write(run: suites.RunExport) -> bytes:
    """Records of one arm: a value is the median of one process, in seconds for one iteration."""
    records = [_record(run, series) for series, _ in suites.times_of(run.suite, raw=True)]
    return (json.dumps(records, indent=1) + "\n").encode()


def _record(run: suites.RunExport, series: suites.ImportedSeries) -> dict[str, Any]:
    parameters = {printable(key): printable(value) for key, value in series.parameters}
    return {
        "benchmark": {
            "name": OUR_BENCHMARK,
            "mode": "training",
            "dtype": parameters.get("dtype", ""),
            "extra_info": {"suite": printable(run.result.suite), "arm": run.arm, "run": run.result.run_id},
        },
        "model": {
            "name": printable(series.name),
            "type": printable(series.name.partition(".")[0]),
            "backend": "",
            "extra_info": parameters,
        },
        "metric": {
            "name": _METRIC,
            "benchmark_values": list(suites.process_medians(series.samples)),
            "extra_info": {"values": _PER_PROCESS},
        },
        "runners": [
            {
                "name": run.result.machine_id,
                "type": "cpu",
                "cpu_info": printable(run.result.machine),
                "cpu_count": len(run.result.cpus),
            }
        ],
        "dependencies": {
            "torch": {"repo": "pytorch/pytorch", "branch": "", "sha": "", "version": run.suite.torch or ""},
            "perfguard": {"repo": "", "branch": "", "sha": "", "version": __version__},
        },
    }
