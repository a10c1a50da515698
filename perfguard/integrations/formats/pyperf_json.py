"""pyperf's JSON, format 1.0: `{version, metadata, benchmarks: [{metadata, runs: [{metadata, values, warmups}]}]}`.

A run is one process, so this is the format that holds what a comparison needs. Runs that perfguard wrote carry the
control workload of their time under the same key as in stored baselines.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats import reading, suites
from perfguard.records.facts import fact
from perfguard.units import printable

CONTROL_KEY = "perfguard_canary_s"
STARTED_KEY = "perfguard_started_at"
_VERSION = "1.0"
_KINDS = {"second": (suites.TIME, suites.SECONDS), "byte": ("bytes", "B"), "integer": ("integer", "")}
"""Metric and unit by pyperf's unit."""


class _Run(msgspec.Struct):
    values: list[float] = []
    metadata: dict[str, Any] = {}


class _Benchmark(msgspec.Struct):
    runs: list[_Run]
    metadata: dict[str, Any] = {}


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    metadata: dict[str, Any] | None = None


def read(document: Any, *, source: str) -> suites.ImportedSuite:
    """All benchmarks of a file; runs that only calibrated loops are passed over, warm-up values too."""
    version = document.get("version") if isinstance(document, dict) else None
    if version != _VERSION:
        raise StoreError(
            f"{source} has pyperf's format {version!r}, only {_VERSION} can be read; rewrite it with `python -m pyperf "
            "convert`"
        )
    file = from_builtins(document, _File, source=source)
    metadata = file.metadata or {}
    series: list[suites.ImportedSeries] = []
    calibrations: list[str] = []
    for benchmark in file.benchmarks:
        found = _series(benchmark, {**metadata, **benchmark.metadata}, source=source)
        if isinstance(found, str):
            calibrations.append(found)
        else:
            series.append(found)
    facts = {**metadata, **(file.benchmarks[0].metadata if file.benchmarks else {})}
    missing = fact("import.left_out_calibrations", benchmarks=len(calibrations), names=tuple(calibrations))
    return reading.checked_suite(
        "pyperf",
        source,
        series,
        version=facts.get("perf_version"),
        machine=facts.get("cpu_model_name"),
        machine_id=facts.get("perfguard_machine_id"),
        python=facts.get("python_version"),
        torch=facts.get("perfguard_torch_version"),
        what_is_missing=(missing,) if calibrations else (),
    )


def _series(benchmark: _Benchmark, common: dict[str, Any], *, source: str) -> suites.ImportedSeries | str:
    """A benchmark as a series; its name alone where no run holds a value."""
    runs = [(run.values, {**common, **run.metadata}) for run in benchmark.runs]
    first = runs[0][1] if runs else common
    name = first.get("name")
    if not isinstance(name, str):
        raise StoreError(f"{source} holds a benchmark without a name")
    reading.checked_name(name, source=source)
    kind = str(first.get("unit", "second"))
    if kind not in _KINDS:
        raise StoreError(f"{source}: {name} is measured in {printable(kind)[:40]!r}, which pyperf does not know")
    metric, unit = _KINDS[kind]
    samples = [
        suites.ProcessSamples(
            values=reading.checked_values(values, name=name, source=source, unit=unit),
            control_s=_control(metadata),
            started_at=reading.number_or_none(metadata.get(STARTED_KEY)),
        )
        for values, metadata in runs
        if values
    ]
    if not samples:
        return name
    return suites.series_of_samples(name, samples, metric=metric, unit=unit, inner_loops=_loops(runs[-1][1]))


def _control(metadata: dict[str, Any]) -> tuple[float, ...]:
    value = reading.number_or_none(metadata.get(CONTROL_KEY))
    return (value,) if value is not None and reading.is_usable(value) else ()


def _loops(metadata: dict[str, Any]) -> int | None:
    found = [metadata[key] for key in ("loops", "inner_loops") if key in metadata]
    are_counts = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n < 10**12 for n in found)
    return math.prod(found) if found and are_counts else None


def write(suite: suites.ImportedSuite) -> bytes:
    """A file that `python -m pyperf stats`, `compare_to` and `hist` read; series that are no times are left out."""
    benchmarks = [_benchmark(series) for series in suite.series if series.unit == suites.SECONDS and series.samples]
    if not benchmarks:
        raise StoreError(f"{suite.source} holds no raw times, and pyperf's format holds nothing else")
    facts = {
        "cpu_model_name": suite.machine,
        "perfguard_machine_id": suite.machine_id,
        "perfguard_torch_version": suite.torch,
        "python_version": suite.python,
        "perfguard_version": suite.version if suite.tool == "perfguard" else None,
    }
    known = {key: text for key, value in facts.items() if (text := reading.text_or_none(value))}
    document = {"version": _VERSION, "metadata": {"unit": "second", **known}, "benchmarks": benchmarks}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _benchmark(series: suites.ImportedSeries) -> dict[str, Any]:
    loops = {"inner_loops": series.inner_loops} if series.inner_loops else {}
    return {
        "metadata": {"name": reading.text_or_none(series.name), **loops},
        "runs": [{"metadata": _metadata(run), "values": list(run.values)} for run in series.samples or ()],
    }


def _metadata(process: suites.ProcessSamples) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if process.control_s:
        metadata[CONTROL_KEY] = sorted(process.control_s)[len(process.control_s) // 2]
    if process.started_at is not None:
        metadata[STARTED_KEY] = round(process.started_at, 3)
    if date := suites.utc_text(process.started_at, separator=" "):
        metadata["date"] = date
    return metadata
