"""Small files as other benchmark tools write them, by hand; and what perfguard reads from bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfguard.config import load_config
from perfguard.gate.show import show_run
from perfguard.integrations.formats.exporting import arms_of, measured_until
from perfguard.integrations.formats.importing import AUTO, import_suite
from perfguard.integrations.formats.suites import ImportedSeries, ImportedSuite, ProcessSamples, RunExport, summarize
from perfguard.runner.run_folder import read_events
from tests.recorded_runs import DATA

PYPERF = {
    "benchmarks": [
        {
            "metadata": {"loops": 1024, "name": "sort"},
            "runs": [
                {
                    "metadata": {"calibrate_loops": 1024, "date": "2026-09-21 14:00:00.123456", "duration": 0.09},
                    "warmups": [[1, 3.1e-05], [1024, 2.1e-05]],
                },
                {
                    "metadata": {"date": "2026-09-21 14:00:01.123456", "duration": 0.12},
                    "values": [2.0e-05, 2.2e-05, 2.1e-05],
                    "warmups": [[1024, 2.5e-05]],
                },
                {
                    "metadata": {"date": "2026-09-21 14:00:02.123456", "duration": 0.12},
                    "values": [2.4e-05, 2.3e-05, 2.5e-05],
                    "warmups": [[1024, 2.6e-05]],
                },
            ],
        },
        {
            "metadata": {"name": "peak", "unit": "byte"},
            "runs": [{"metadata": {"mem_max_rss": 20000}, "values": [1048576]}],
        },
    ],
    "metadata": {
        "cpu_count": 4,
        "cpu_model_name": "Example CPU",
        "hostname": "secret",
        "perf_version": "2.10.0",
        "python_version": "3.12.4 (64-bit)",
        "unit": "second",
    },
    "version": "1.0",
}
"""As `pyperf.BenchmarkSuite.dump` writes it: a run that calibrated, two with values; common metadata hoisted."""

ASV: dict[str, Any] = {
    "commit_hash": "cb63287e63db10ce3eb0f3b8c279fd995678d0ae",
    "env_name": "virtualenv-py3.11",
    "date": 1696315841000,
    "params": {
        "arch": "x86_64",
        "cpu": "Example CPU",
        "machine": "box",
        "num_cpu": "8",
        "os": "Linux 6.1",
        "ram": "16GB",
        "python": "3.11",
    },
    "python": "3.11",
    "requirements": {},
    "env_vars": {},
    "result_columns": [
        "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
        "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
    ],
    "results": {
        "benchmarks.TimeSuite.time_insertion": [
            [4.789694385535404e-07], [], "1198fba4", 1697559305660, 0.40301, [4.7191e-07], [4.8881e-07], [4.7676e-07],
            [4.8181e-07], [22921], [10],
        ],
        "remote.SliceBenchmark.time_slice": [
            [0.8071024999953806, None, float("nan"), 0.9],
            [["'a'", "'b'"], ["1", "2"]],
            "bb6fdd61", 1708552612283, 59.726,
            [float("-inf"), None, None, 0.8], [float("inf"), None, None, 1.0], [0.69, None, None, 0.85],
            [0.87, None, None, 0.95], [1, None, None, 1], [3, None, None, 2],
            [[0.8071024999953806, 0.9324163000565022, 0.5638924000086263], None, None, [0.85, 0.95]],
        ],
        "benchmarks.MemSuite.peakmem_list": [[52428800], [], "11", 1697559305660, 1.2],
        "benchmarks.track_losses": [[0.25], [], "12", 1697559305660, 1.2],
        "benchmarks.time_broken": [None, []],
    },
    "durations": {"<build>": 12.5},
    "version": 2,
}  # fmt: skip
"""As `asv.results.Results.save` writes it, with `--record-samples` for one benchmark; NaN and -Infinity as literals."""

PYTEST = {
    "machine_info": {
        "node": "secret",
        "processor": "x86_64",
        "machine": "x86_64",
        "python_implementation": "CPython",
        "python_version": "3.12.4",
        "python_build": ["main", "Jun  6 2024"],
        "cpu": {"brand_raw": "Example CPU", "count": 4, "l2_cache_size": "8 MiB"},
    },
    "commit_info": {"id": "a" * 40, "time": "2026-09-21T14:00:00+00:00", "dirty": False, "branch": "main"},
    "benchmarks": [
        {
            "group": None,
            "name": "test_sort[100-fast]",
            "fullname": "tests/test_perf.py::test_sort[100-fast]",
            "params": {"size": 100, "kind": "fast", "data": [1, 2]},
            "param": "100-fast",
            "extra_info": {},
            "options": {"disable_gc": False, "timer": "perf_counter", "min_rounds": 5, "max_time": 1.0},
            "stats": {
                "min": 1.4e-05, "max": 2.2e-05, "mean": 1.7e-05, "stddev": 2.9e-06, "rounds": 5, "median": 1.6e-05,
                "iqr": 2.0e-06, "q1": 1.5e-05, "q3": 1.7e-05, "iqr_outliers": 1, "stddev_outliers": 1,
                "outliers": "1;1", "ld15iqr": 1.4e-05, "hd15iqr": 2.2e-05, "ops": 58823.5, "total": 8.5e-05,
                "data": [2.2e-05, 1.6e-05, 1.5e-05, 1.7e-05, 1.4e-05],
                "iterations": 2,
            },
        },
        {
            "group": None,
            "name": "test_saved_without_data",
            "fullname": "tests/test_perf.py::test_saved_without_data",
            "params": None,
            "param": None,
            "extra_info": {},
            "options": {},
            "stats": {
                "min": 3.9e-06, "max": 4.0e-03, "mean": 5.0e-06, "stddev": 1.7e-05, "rounds": 102523,
                "median": 4.7e-06, "iqr": 2.2e-07, "q1": 4.6e-06, "q3": 4.8e-06, "outliers": "1373;18677",
                "ops": 138887.4, "total": 0.86, "iterations": 1,
            },
        },
    ],
    "datetime": "2026-09-21T14:00:00.000000+00:00",
    "version": "5.1.0",
}  # fmt: skip
"""As `--benchmark-json` writes it; the second test as `--benchmark-save` does, without data."""


def _row(name: str, value: float, index: int = 0, **fields: object) -> dict[str, object]:
    return {
        "name": name,
        "family_index": 0,
        "per_family_instance_index": 0,
        "run_name": "BM_Add/8/repeats:3",
        "run_type": "iteration",
        "repetitions": 3,
        "repetition_index": index,
        "threads": 1,
        "iterations": 1000,
        "real_time": value,
        "cpu_time": value,
        "time_unit": "ns",
        **fields,
    }


GOOGLE = {
    "context": {
        "date": "2026-09-21T14:00:00+00:00",
        "host_name": "secret",
        "executable": "./bench",
        "num_cpus": 8,
        "mhz_per_cpu": 2600,
        "cpu_scaling_enabled": True,
        "caches": [{"type": "Data", "level": 1, "size": 32768, "num_sharing": 1}],
        "load_avg": [0.1, 0.2, 0.3],
        "library_version": "v1.8.3",
        "library_build_type": "release",
        "json_schema_version": 1,
    },
    "benchmarks": [
        _row("BM_Add/8/repeats:3", 3.5),
        _row("BM_Add/8/repeats:3", 3.7, 1),
        _row("BM_Add/8/repeats:3", 3.6, 2),
        _row("BM_Add/8/repeats:3_mean", 3.6, run_type="aggregate", aggregate_name="mean", aggregate_unit="time"),
        _row("BM_Add/8/repeats:3_cv", 0.02, run_type="aggregate", aggregate_name="cv", aggregate_unit="percentage"),
        {"name": "BM_Add_BigO", "run_name": "BM_Add", "run_type": "aggregate", "cpu_coefficient": 0.1, "big_o": "N"},
        _row("BM_Slow", 2.5, run_name="BM_Slow", time_unit="ms", counter=float("nan")),
        _row("BM_Broken", 0.0, run_name="BM_Broken", error_occurred=True, error_message="no file"),
    ],
}
"""As `--benchmark_out` writes it: three repetitions, their aggregates, one with a NaN counter, one that failed."""

PYTORCH = [
    {
        "benchmark": {
            "name": "pr_time_benchmarks",
            "mode": "training",
            "dtype": "bf16",
            "extra_info": {"is_dynamic": False, "device": "cpu", "description": "a loop"},
        },
        "model": {"name": "add_loop", "type": "add_loop", "backend": "eager"},
        "metric": {"name": "compile_time_instruction_count", "benchmark_values": [3086359081]},
    },
    {
        "benchmark": {"name": "inductor", "extra_info": {"device": "cpu"}},
        "model": {"name": "resnet50"},
        "metric": {"name": "avg_latency(ms)", "benchmark_values": [12.5, 12.7]},
        "runners": [{"name": "box", "type": "linux.24xl.spr-metal", "cpu_info": "x86_64", "cpu_count": 96}],
        "dependencies": {"torch": {"repo": "pytorch/pytorch", "version": "2.8.0"}},
    },
]
"""As benchmarks in pytorch/pytorch write them for the upload."""

BENCHER = {
    "sort": {
        "latency": {"value": 88.0, "lower_value": 87.42, "upper_value": 88.88},
        "throughput": {"value": 5.55, "lower_value": 3.14, "upper_value": 6.3},
    },
    "my_binary": {"file-size": {"value": 42.0}},
}
"""The example of Bencher's own documentation."""

EXAMPLES: dict[str, Any] = {
    "pyperf": PYPERF,
    "asv": ASV,
    "pytest-benchmark": PYTEST,
    "google-benchmark": GOOGLE,
    "pytorch": PYTORCH,
    "bencher": BENCHER,
}
"""By the name of the format."""


def read(document: Any, name: str = AUTO) -> ImportedSuite:
    """What perfguard reads from a document."""
    return import_suite(json.dumps(document).encode(), source="x.json", name=name)


def series_of(suite: ImportedSuite, name: str) -> ImportedSeries:
    """The only series of that name."""
    (found,) = [series for series in suite.series if series.name == name]
    return found


def measured(name: str, *processes: tuple[float, ...], control_s: float | None = None, **fields: Any) -> ImportedSeries:
    """A series of times, one tuple a process."""
    samples = tuple(
        ProcessSamples(values=values, control_s=() if control_s is None else (control_s,)) for values in processes
    )
    return ImportedSeries(
        **{
            "name": name,
            "samples": samples,
            "has_processes": True,
            "summary": summarize(samples),
            "n": sum(len(values) for values in processes),
            **fields,
        }
    )


def suite_of(*series: ImportedSeries, source: str = "a.json", **fields: Any) -> ImportedSuite:
    """A suite of some tool."""
    return ImportedSuite(tool="pyperf", version=None, source=source, series=series, **fields)


def recorded(name: str, project: Path, *, commit: str | None = None) -> RunExport:
    """A recorded run of tests/data, as exporters get it."""
    folder = DATA / name
    result = show_run(load_config(project, {}, {}), folder)
    events = tuple(read_events(folder / "events.jsonl"))
    return RunExport(result=result, arms=arms_of(events, result), measured_until=measured_until(events), commit=commit)
