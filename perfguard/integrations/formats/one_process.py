"""Files whose values all come from one process: pytest-benchmark and Google Benchmark.

`--benchmark-json` and `--benchmark-save` of pytest-benchmark: `stats.data` holds the seconds of one iteration for each
round; `--benchmark-save` leaves it out unless `--benchmark-save-data` is given.

`--benchmark_format=json` and `--benchmark_out=FILE` of Google Benchmark: only rows of `run_type` `iteration` are read,
one a repetition, each the mean over its iterations. Aggregates (mean, median, stddev, BigO) are recomputed or passed
over. Source: src/json_reporter.cc of google/benchmark.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats import reading, suites
from perfguard.records.facts import fact
from perfguard.units import printable

_SUMMARY = {
    "median": "median",
    "mean": "mean",
    "sd": "stddev",
    "minimum": "min",
    "maximum": "max",
    "q25": "q1",
    "q75": "q3",
}
"""pytest-benchmark's names of what a summary holds."""
_KEEPS_SAMPLES = "--benchmark-json or --benchmark-save-data"


class _Test(msgspec.Struct):
    fullname: str
    stats: dict[str, Any]
    params: Any = None


class _PytestFile(msgspec.Struct):
    benchmarks: list[_Test]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    version: str | None = None


def read_pytest(document: Any, *, source: str) -> suites.ImportedSuite:
    """All tests of a file; those without a median are left out, and said so."""
    file = from_builtins(document, _PytestFile, source=source)
    series, empty = [], []
    for test in file.benchmarks:
        reading.checked_name(test.fullname, source=source)
        if test.stats.get("data") or reading.number_or_none(test.stats.get("median")) is not None:
            series.append(_test_series(test, source=source))
        else:
            empty.append(test.fullname)
    cpu = file.machine_info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    return reading.checked_suite(
        "pytest-benchmark",
        source,
        series,
        version=file.version,
        commit=file.commit_info.get("id"),
        # The key changed with py-cpuinfo 5.
        machine=reading.text_or_none(cpu.get("brand_raw"), cpu.get("brand"), file.machine_info.get("machine")),
        python=file.machine_info.get("python_version"),
        what_is_missing=reading.left_out_empty(empty),
    )


def _test_series(test: _Test, *, source: str) -> suites.ImportedSeries:
    name, stats, parameters = test.fullname, test.stats, reading.parameters_of(test.params)
    inner_loops = reading.count_or_none(stats.get("iterations")) or None
    if stats.get("data"):
        data = from_builtins(stats["data"], list[float], source=f"{source}: the rounds of {name}")
        samples = (suites.ProcessSamples(values=reading.checked_values(data, name=name, source=source)),)
        return suites.series_of_samples(name, samples, parameters=parameters, inner_loops=inner_loops)
    reading.checked_values((float(stats["median"]),), name=name, source=source)
    return suites.ImportedSeries(
        name=name,
        parameters=parameters,
        samples=None,
        summary=suites.SeriesSummary(
            **{ours: reading.number_or_none(stats.get(theirs)) for ours, theirs in _SUMMARY.items()}
        ),
        n=reading.count_or_none(stats.get("rounds")),
        inner_loops=inner_loops,
        what_is_missing=(fact("import.no_samples", option=_KEEPS_SAMPLES),),
    )


class _Row(msgspec.Struct):
    name: str
    run_type: str | None = None
    run_name: str | None = None
    iterations: Any = None
    threads: Any = None
    real_time: float | None = None
    time_unit: str = "ns"
    error_occurred: bool = False
    skipped: bool = False


class _GoogleFile(msgspec.Struct):
    benchmarks: list[_Row]
    context: dict[str, Any] = {}


def read_google(document: Any, *, source: str) -> suites.ImportedSuite:
    """The wall time of all benchmarks of a file; what reported an error is left out, and said so."""
    file = from_builtins(document, _GoogleFile, source=source)
    repetitions: dict[str, list[_Row]] = {}
    failed: list[str] = []
    for row in file.benchmarks:
        if row.run_type is None:
            raise StoreError(
                f"{source}: {printable(row.name)[:60]} does not tell whether it is a measurement or an aggregate; "
                "write the file with Google Benchmark 1.5 or later"
            )
        if row.error_occurred or row.skipped:
            failed.append(row.name)
        elif row.run_type == "iteration":
            repetitions.setdefault(row.run_name or row.name, []).append(row)
    # What the tool itself warns of on the console.
    warnings = [fact("import.debug_build")] if file.context.get("library_build_type") == "debug" else []
    if file.context.get("cpu_scaling_enabled") is True:
        warnings.append(fact("import.frequency_scaling"))
    cpus, mhz = file.context.get("num_cpus"), file.context.get("mhz_per_cpu")
    return reading.checked_suite(
        "google-benchmark",
        source,
        [_repeated_series(name, rows, source=source) for name, rows in repetitions.items()],
        version=file.context.get("library_version"),
        machine=f"{cpus} CPUs of {mhz} MHz" if isinstance(cpus, int) and isinstance(mhz, int) else None,
        what_is_missing=(*reading.left_out_failed(failed), *warnings),
    )


def _repeated_series(name: str, rows: list[_Row], *, source: str) -> suites.ImportedSeries:
    reading.checked_name(name, source=source)
    values = reading.checked_values((_seconds(row, source=source) for row in rows), name=name, source=source)
    loops = {reading.count_or_none(row.iterations) for row in rows}
    threads = reading.count_or_none(rows[0].threads)
    return suites.series_of_samples(
        name,
        (suites.ProcessSamples(values=values),),
        parameters=() if threads is None else (("threads", str(threads)),),
        inner_loops=loops.pop() if len(loops) == 1 else None,
        what_is_missing=(fact("import.one_repetition"),) if len(values) == 1 else (),
    )


def _seconds(row: _Row, *, source: str) -> float:
    scale = reading.SECONDS_IN.get(row.time_unit)
    if row.real_time is None or scale is None:
        raise StoreError(
            f"{source}: {printable(row.name)[:60]} has no real_time in a unit that is known "
            f"({printable(row.time_unit)[:20]!r})"
        )
    return row.real_time * scale
