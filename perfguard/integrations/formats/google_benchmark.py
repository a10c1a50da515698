"""JSON of Google Benchmark: `--benchmark_format=json` or `--benchmark_out=FILE`.

Only rows of `run_type` `iteration` are read: one a repetition, each the mean over its iterations, all from one process.
Aggregates (mean, median, stddev, BigO) are recomputed or passed over. Source: src/json_reporter.cc of google/benchmark.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats.checks import (
    SECONDS_IN,
    checked_name,
    checked_suite,
    checked_values,
    count_or_none,
    left_out_failed,
    text_or_none,
)
from perfguard.integrations.formats.series import ImportedSeries, ImportedSuite, ProcessSamples, summarize
from perfguard.records.facts import Fact, fact
from perfguard.units import printable


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


class _File(msgspec.Struct):
    benchmarks: list[_Row]
    context: dict[str, Any] = {}


def recognises(document: Any) -> bool:
    """Whether a document has the shape of a Google Benchmark file."""
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list) and "context" in document


def read(document: Any, *, source: str) -> ImportedSuite:
    """The wall time of all benchmarks of a file; what reported an error is left out, and said so.

    Raises:
        StoreError: It is not Google Benchmark's, too old to tell aggregates apart, or holds what is no time.
    """
    file = from_builtins(document, _File, source=source)
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
    return checked_suite(
        ImportedSuite(
            tool="google-benchmark",
            version=text_or_none(file.context.get("library_version")),
            source=source,
            series=tuple(_series(name, rows, source=source) for name, rows in repetitions.items()),
            machine=_machine(file.context),
            what_is_missing=(*left_out_failed(failed), *_warnings(file.context)),
        )
    )


def _series(name: str, rows: list[_Row], *, source: str) -> ImportedSeries:
    checked_name(name, source=source)
    values = checked_values((_seconds(row, source=source) for row in rows), name=name, source=source)
    samples = (ProcessSamples(values=values),)
    loops = {count_or_none(row.iterations) for row in rows}
    threads = count_or_none(rows[0].threads)
    return ImportedSeries(
        name=name,
        parameters=() if threads is None else (("threads", str(threads)),),
        samples=samples,
        has_processes=True,
        summary=summarize(samples),
        n=len(values),
        inner_loops=loops.pop() if len(loops) == 1 else None,
        what_is_missing=((fact("import.one_repetition"),) if len(values) == 1 else ()),
    )


def _seconds(row: _Row, *, source: str) -> float:
    scale = SECONDS_IN.get(row.time_unit)
    if row.real_time is None or scale is None:
        raise StoreError(
            f"{source}: {printable(row.name)[:60]} has no real_time in a unit that is known "
            f"({printable(row.time_unit)[:20]!r})"
        )
    return row.real_time * scale


def _machine(context: dict[str, Any]) -> str | None:
    cpus, mhz = context.get("num_cpus"), context.get("mhz_per_cpu")
    return f"{cpus} CPUs of {mhz} MHz" if isinstance(cpus, int) and isinstance(mhz, int) else None


def _warnings(context: dict[str, Any]) -> tuple[Fact, ...]:
    """What the tool itself warns of on the console."""
    found = []
    if context.get("library_build_type") == "debug":
        found.append(fact("import.debug_build"))
    if context.get("cpu_scaling_enabled") is True:
        found.append(fact("import.frequency_scaling"))
    return tuple(found)
