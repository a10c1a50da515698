"""Bencher Metric Format: `{benchmark: {measure: {value, lower_value, upper_value}}}`; latency in nanoseconds.

Source: https://bencher.dev/docs/reference/bencher-metric-format.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats.checks import MAX_NAME, checked_name, checked_suite, checked_values, number_or_none
from perfguard.integrations.formats.series import (
    SECONDS,
    TIME,
    ImportedSeries,
    ImportedSuite,
    SeriesSummary,
    process_medians,
    quantile,
)
from perfguard.records.facts import fact
from perfguard.units import printable

_LATENCY = "latency"
_NS = 1e9
"""Nanoseconds in a second: Bencher's unit of latency."""
_MEASURES = {"throughput": "1/s", "file-size": "B", "build-time": SECONDS}
"""Units of Bencher's other built-in measures."""


class _Metric(msgspec.Struct):
    value: float
    lower_value: float | None = None
    upper_value: float | None = None


def recognises(document: Any) -> bool:
    """Whether every benchmark maps measures to objects with a value."""
    if not isinstance(document, dict) or not document:
        return False
    return all(
        isinstance(measures, dict)
        and bool(measures)
        and all(isinstance(metric, dict) and "value" in metric for metric in measures.values())
        for measures in document.values()
    )


def read(document: Any, *, source: str) -> ImportedSuite:
    """All measures of all benchmarks.

    Raises:
        StoreError: It is not Bencher's format.
    """
    benchmarks = from_builtins(document, dict[str, dict[str, _Metric]], source=source)
    return checked_suite(
        ImportedSuite(
            tool="bencher",
            version=None,
            source=source,
            series=tuple(
                _series(name, measure, metric, source=source)
                for name, measures in benchmarks.items()
                for measure, metric in measures.items()
            ),
            what_is_missing=(fact("import.bare_format"),),
        )
    )


def _series(name: str, measure: str, metric: _Metric, *, source: str) -> ImportedSeries:
    checked_name(name, source=source)
    is_latency = measure == _LATENCY
    unit = SECONDS if is_latency else _MEASURES.get(measure, "")
    scale = _NS if is_latency else 1.0
    (value,) = checked_values((metric.value / scale,), name=name, source=source, unit=unit)
    lower, upper = number_or_none(metric.lower_value), number_or_none(metric.upper_value)
    return ImportedSeries(
        name=name,
        metric=TIME if is_latency else checked_name(measure, source=source, what="a measure"),
        unit=unit,
        samples=None,
        summary=SeriesSummary(
            median=value, lower=None if lower is None else lower / scale, upper=None if upper is None else upper / scale
        ),
        n=None,
    )


def write(suite: ImportedSuite) -> bytes:
    """The latency of each series: its median, with the quartiles of its processes as lower and upper value.

    Raises:
        StoreError: There is nothing to write.
    """
    metrics = {
        printable(series.name)[:MAX_NAME]: {_LATENCY: _latency(series)}
        for series in suite.series
        if series.unit == SECONDS and series.summary.median is not None
    }
    if not metrics:
        raise StoreError(f"{suite.source} holds no times that the format could hold")
    return (json.dumps(metrics, indent=1) + "\n").encode()


def _latency(series: ImportedSeries) -> dict[str, float]:
    found = {"value": (series.summary.median or 0.0) * _NS}
    medians = sorted(process_medians(series.samples or ()))
    if len(medians) > 1:
        found["lower_value"] = quantile(medians, 0.25) * _NS
        found["upper_value"] = quantile(medians, 0.75) * _NS
    return found
