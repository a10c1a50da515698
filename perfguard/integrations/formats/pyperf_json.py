"""pyperf's JSON, format 1.0: `{version, metadata, benchmarks: [{metadata, runs: [{metadata, values, warmups}]}]}`.

A run is one process, so this is the format that holds what a comparison needs. Runs that perfguard wrote carry the
control workload of their time under the same key as in stored baselines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats.checks import (
    checked_name,
    checked_suite,
    checked_values,
    is_usable,
    number_or_none,
    text_or_none,
)
from perfguard.integrations.formats.moments import utc_text
from perfguard.integrations.formats.series import (
    SECONDS,
    TIME,
    ImportedSeries,
    ImportedSuite,
    ProcessSamples,
    summarize,
)
from perfguard.records.facts import Fact, fact
from perfguard.units import printable

CONTROL_KEY = "perfguard_canary_s"
STARTED_KEY = "perfguard_started_at"
_VERSION = "1.0"
_UNITS = {"second": SECONDS, "byte": "B", "integer": ""}
_METRICS = {"second": TIME, "byte": "bytes", "integer": "integer"}


class _Run(msgspec.Struct):
    values: list[float] = []
    metadata: dict[str, Any] = {}


class _Benchmark(msgspec.Struct):
    runs: list[_Run]
    metadata: dict[str, Any] = {}


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    metadata: dict[str, Any] | None = None


def recognises(document: Any) -> bool:
    """Whether a document has the shape of a pyperf file."""
    if not isinstance(document, dict):
        return False
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks or "version" not in document:
        return False
    return all(isinstance(entry, dict) and "runs" in entry for entry in benchmarks)


def read(document: Any, *, source: str) -> ImportedSuite:
    """All benchmarks of a file; runs that only calibrated loops are passed over, warm-up values too.

    Raises:
        StoreError: It is not of format 1.0, or holds what is no measurement.
    """
    version = document.get("version") if isinstance(document, dict) else None
    if version != _VERSION:
        raise StoreError(
            f"{source} has pyperf's format {version!r}, only {_VERSION} can be read; rewrite it with `python -m pyperf "
            "convert`"
        )
    file = from_builtins(document, _File, source=source)
    series, calibrations = [], []
    for benchmark in file.benchmarks:
        common = {**(file.metadata or {}), **benchmark.metadata}
        found = _series(benchmark, common, source=source)
        if isinstance(found, str):
            calibrations.append(found)
        else:
            series.append(found)
    facts = {**(file.metadata or {}), **(file.benchmarks[0].metadata if file.benchmarks else {})}
    return checked_suite(
        ImportedSuite(
            tool="pyperf",
            version=text_or_none(facts.get("perf_version")),
            source=source,
            series=tuple(series),
            machine=text_or_none(facts.get("cpu_model_name")),
            machine_id=text_or_none(facts.get("perfguard_machine_id")),
            python=text_or_none(facts.get("python_version")),
            torch=text_or_none(facts.get("perfguard_torch_version")),
            what_is_missing=_left_out(calibrations),
        )
    )


def _left_out(names: Sequence[str]) -> tuple[Fact, ...]:
    if not names:
        return ()
    return (fact("import.left_out_calibrations", benchmarks=len(names), names=tuple(names)),)


def _series(benchmark: _Benchmark, common: dict[str, Any], *, source: str) -> ImportedSeries | str:
    """A benchmark as a series; its name alone where no run holds a value."""
    first = {**common, **(benchmark.runs[0].metadata if benchmark.runs else {})}
    name = first.get("name")
    if not isinstance(name, str):
        raise StoreError(f"{source} holds a benchmark without a name")
    checked_name(name, source=source)
    kind = str(first.get("unit", "second"))
    if kind not in _UNITS:
        raise StoreError(f"{source}: {name} is measured in {printable(kind)[:40]!r}, which pyperf does not know")
    samples = tuple(
        ProcessSamples(
            values=checked_values(run.values, name=name, source=source, unit=_UNITS[kind]),
            control_s=_control({**common, **run.metadata}),
            started_at=number_or_none({**common, **run.metadata}.get(STARTED_KEY)),
        )
        for run in benchmark.runs
        if run.values
    )
    if not samples:
        return name
    return ImportedSeries(
        name=name,
        metric=_METRICS[kind],
        unit=_UNITS[kind],
        samples=samples,
        has_processes=True,
        summary=summarize(samples),
        n=sum(len(process.values) for process in samples),
        inner_loops=_loops({**common, **benchmark.runs[-1].metadata}),
    )


def _control(metadata: dict[str, Any]) -> tuple[float, ...]:
    value = number_or_none(metadata.get(CONTROL_KEY))
    return (value,) if value is not None and is_usable(value) else ()


def _loops(metadata: dict[str, Any]) -> int | None:
    product = 1
    if not {"loops", "inner_loops"} & metadata.keys():
        return None
    for key in ("loops", "inner_loops"):
        loops = metadata.get(key, 1)
        if not isinstance(loops, int) or isinstance(loops, bool) or not 1 <= loops < 10**12:
            return None
        product *= loops
    return product


def write(suite: ImportedSuite) -> bytes:
    """A file that `python -m pyperf stats`, `compare_to` and `hist` read; series that are no times are left out.

    Raises:
        StoreError: There is nothing to write.
    """
    benchmarks = [_benchmark(series) for series in suite.series if series.unit == SECONDS and series.samples]
    if not benchmarks:
        raise StoreError(f"{suite.source} holds no raw times, and pyperf's format holds nothing else")
    facts = {
        "cpu_model_name": suite.machine,
        "perfguard_machine_id": suite.machine_id,
        "perfguard_torch_version": suite.torch,
        "python_version": suite.python,
        "perfguard_version": suite.version if suite.tool == "perfguard" else None,
    }
    document = {
        "version": _VERSION,
        "metadata": {"unit": "second", **{key: _one_line(text) for key, text in facts.items() if _one_line(text)}},
        "benchmarks": benchmarks,
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _benchmark(series: ImportedSeries) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": _one_line(series.name)}
    if series.inner_loops:
        metadata["inner_loops"] = series.inner_loops
    return {"metadata": metadata, "runs": [_run(process) for process in series.samples or ()]}


def _run(process: ProcessSamples) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if process.control_s:
        metadata[CONTROL_KEY] = sorted(process.control_s)[len(process.control_s) // 2]
    if process.started_at is not None:
        metadata[STARTED_KEY] = round(process.started_at, 3)
        date = utc_text(process.started_at, separator=" ")
        if date is not None:
            metadata["date"] = date
    return {"metadata": metadata, "values": list(process.values)}


def _one_line(text: str | None) -> str:
    """Text as pyperf takes it for metadata, which must not have line breaks; empty where there is none."""
    return " ".join(printable(text or "").split())
