"""Files of sites that draw one number of a benchmark over commits: Bencher and github-action-benchmark.

Bencher Metric Format is `{benchmark: {measure: {value, lower_value, upper_value}}}`; latency is in nanoseconds. Source:
https://bencher.dev/docs/reference/bencher-metric-format.

`customSmallerIsBetter` of github-action-benchmark is a list of `{name, unit, value, range, extra}`. Its charts compare
numbers across commits, so the unit is always the same. Source: src/extract.ts of that repository.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.integrations.formats import reading, suites
from perfguard.records.facts import fact
from perfguard.units import format_effect, printable

_LATENCY = "latency"
_NS, _MS = 1e9, 1e3  # Of Bencher's latency and of charts, in a second
_MEASURES = {_LATENCY: suites.SECONDS, "throughput": "1/s", "file-size": "B", "build-time": suites.SECONDS}
"""Units of Bencher's built-in measures."""


class _Metric(msgspec.Struct):
    value: float
    lower_value: float | None = None
    upper_value: float | None = None


def is_bencher(document: Any) -> bool:
    """Whether every benchmark maps measures to objects with a value."""
    if not isinstance(document, dict) or not document:
        return False
    return all(
        isinstance(measures, dict)
        and bool(measures)
        and all(isinstance(metric, dict) and "value" in metric for metric in measures.values())
        for measures in document.values()
    )


def read_bencher(document: Any, *, source: str) -> suites.ImportedSuite:
    """All measures of all benchmarks."""
    benchmarks = from_builtins(document, dict[str, dict[str, _Metric]], source=source)
    series = [
        _series(name, measure, metric, source=source)
        for name, measures in benchmarks.items()
        for measure, metric in measures.items()
    ]
    return reading.checked_suite("bencher", source, series, what_is_missing=(fact("import.bare_format"),))


def _series(name: str, measure: str, metric: _Metric, *, source: str) -> suites.ImportedSeries:
    reading.checked_name(name, source=source)
    unit = _MEASURES.get(measure, "")
    scale = _NS if measure == _LATENCY else 1.0
    (median,) = reading.checked_values((metric.value / scale,), name=name, source=source, unit=unit)
    lower, upper = reading.number_or_none(metric.lower_value), reading.number_or_none(metric.upper_value)
    return suites.ImportedSeries(
        name=name,
        metric=suites.TIME if measure == _LATENCY else reading.checked_name(measure, source=source, what="a measure"),
        unit=unit,
        samples=None,
        summary=suites.SeriesSummary(
            median=median,
            lower=None if lower is None else lower / scale,
            upper=None if upper is None else upper / scale,
        ),
        n=None,
    )


def write_bencher(suite: suites.ImportedSuite) -> bytes:
    """The latency of each series: its median, with the quartiles of its processes as lower and upper value."""
    metrics = {}
    for series, median_s in suites.times_of(suite):
        latency = {"value": median_s * _NS}
        medians = sorted(suites.process_medians(series.samples))
        if len(medians) > 1:
            latency |= {
                "lower_value": suites.quantile(medians, 0.25) * _NS,
                "upper_value": suites.quantile(medians, 0.75) * _NS,
            }
        metrics[printable(series.name)[: reading.MAX_NAME]] = {_LATENCY: latency}
    return (json.dumps(metrics, indent=1) + "\n").encode()


def write_github_action(run: suites.RunExport) -> bytes:
    """Median time of each case; the standard deviation between processes as range, the verdict as extra."""
    verdicts = {verdict.case_id: verdict for verdict in run.result.gate.verdicts} if run.result.gate else {}
    entries = []
    for series, median_s in suites.times_of(run.suite):
        entry: dict[str, object] = {"name": printable(series.name), "unit": "ms", "value": median_s * _MS}
        medians = suites.process_medians(series.samples)
        if len(medians) > 1:
            entry["range"] = f"± {statistics.stdev(medians) * _MS:.4g}"
        lines = [f"processes: {len(medians)}"]
        if verdict := verdicts.get(series.name):
            lines.append(f"verdict: {verdict.outcome.value}")
            if verdict.effect is not None:
                lines.append(f"effect: {format_effect(verdict.effect.log_ratio)}")
        entries.append({**entry, "extra": "\n".join(lines)})
    return (json.dumps(entries, indent=1) + "\n").encode()
