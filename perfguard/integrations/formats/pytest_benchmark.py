"""JSON of pytest-benchmark: what `--benchmark-json` and `--benchmark-save` write.

`stats.data` holds the seconds of one iteration for each round; `--benchmark-save` leaves it out unless
`--benchmark-save-data` is given. All rounds of a file are from one process.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.integrations.formats.checks import (
    checked_name,
    checked_suite,
    checked_values,
    count_or_none,
    left_out_empty,
    number_or_none,
    parameters_of,
    text_or_none,
)
from perfguard.integrations.formats.series import (
    ImportedSeries,
    ImportedSuite,
    ProcessSamples,
    SeriesSummary,
    summarize,
)
from perfguard.records.facts import fact

_KEEPS_SAMPLES = "--benchmark-json or --benchmark-save-data"


class _Stats(msgspec.Struct):
    data: list[float] | None = None
    rounds: Any = None
    iterations: Any = None
    median: Any = None
    mean: Any = None
    stddev: Any = None
    min: Any = None
    max: Any = None
    q1: Any = None
    q3: Any = None


class _Benchmark(msgspec.Struct):
    fullname: str
    stats: _Stats
    params: Any = None


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] = {}
    version: str | None = None


def recognises(document: Any) -> bool:
    """Whether a document has the shape of a pytest-benchmark file."""
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list) and "machine_info" in document


def read(document: Any, *, source: str) -> ImportedSuite:
    """All tests of a file; those without a median are left out, and said so.

    Raises:
        StoreError: It is not pytest-benchmark's, or holds what is no time.
    """
    file = from_builtins(document, _File, source=source)
    series, empty = [], []
    for benchmark in file.benchmarks:
        checked_name(benchmark.fullname, source=source)
        if benchmark.stats.data or number_or_none(benchmark.stats.median) is not None:
            series.append(_series(benchmark, source=source))
        else:
            empty.append(benchmark.fullname)
    return checked_suite(
        ImportedSuite(
            tool="pytest-benchmark",
            version=text_or_none(file.version),
            source=source,
            series=tuple(series),
            commit=text_or_none(file.commit_info.get("id")),
            machine=_machine(file.machine_info),
            python=text_or_none(file.machine_info.get("python_version")),
            what_is_missing=left_out_empty(empty),
        )
    )


def _series(benchmark: _Benchmark, *, source: str) -> ImportedSeries:
    name, stats = benchmark.fullname, benchmark.stats
    samples = (ProcessSamples(values=checked_values(stats.data, name=name, source=source)),) if stats.data else None
    return ImportedSeries(
        name=name,
        parameters=parameters_of(benchmark.params),
        samples=samples,
        has_processes=samples is not None,
        summary=summarize(samples) if samples else _summary(stats, name=name, source=source),
        n=len(samples[0].values) if samples else count_or_none(stats.rounds),
        inner_loops=count_or_none(stats.iterations) or None,
        what_is_missing=() if samples else (fact("import.no_samples", option=_KEEPS_SAMPLES),),
    )


def _summary(stats: _Stats, *, name: str, source: str) -> SeriesSummary:
    median = number_or_none(stats.median)
    if median is not None:
        checked_values((median,), name=name, source=source)
    return SeriesSummary(
        median=median,
        mean=number_or_none(stats.mean),
        sd=number_or_none(stats.stddev),
        minimum=number_or_none(stats.min),
        maximum=number_or_none(stats.max),
        q25=number_or_none(stats.q1),
        q75=number_or_none(stats.q3),
    )


def _machine(info: dict[str, Any]) -> str | None:
    """The CPU's name; the key changed with py-cpuinfo 5."""
    cpu = info.get("cpu")
    facts = cpu if isinstance(cpu, dict) else {}
    return text_or_none(facts.get("brand_raw")) or text_or_none(facts.get("brand")) or text_or_none(info.get("machine"))
