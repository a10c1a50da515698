"""The cases of an asv suite, and what of it perfguard does not measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfguard.records.facts import fact
from perfguard.worker.adopted.asv_instances import AsvSource
from perfguard.worker.adopted.asv_suites import (
    AsvBenchmark,
    AsvParameters,
    all_attributes,
    benchmarks_in,
    first_attribute,
    other_kinds,
    parameters_of,
)
from perfguard.worker.adopted.found import Combination, Found, first_line
from perfguard.worker.adopted.labels import benchmark_name
from perfguard.worker.adopted.targets import ASV, AdoptedTarget
from perfguard.worker.cases import MissingTargetError

_MEASURING = ("repeat", "rounds", "processes", "sample_time", "warmup_time", "min_run_count", "timeout", "timer")
"""asv's own settings of how to measure; `number` is heeded."""
_SKIPS = ("NotImplementedError", "SkipNotImplemented")


def find_asv(directory: str, found: Found) -> None:
    """Add the benchmarks of a directory."""
    ignored: set[str] = set()
    skipped = 0
    for benchmark in benchmarks_in(directory):
        _, sources = benchmark.instance()
        ignored.update(name for name in _MEASURING if first_attribute(sources[:-1], name, None) is not None)
        parameters = parameters_of(sources)
        kept = list(_run(benchmark, parameters, sources))
        skipped += len(list(parameters.combinations())) - len(kept)
        found.add(
            AdoptedTarget(tool=ASV, place=directory, name=benchmark.location),
            benchmark_name((ASV, *benchmark.name.split("."))),
            parameters.names,
            kept,
            doc=first_line(benchmark.function.__doc__) or first_line(getattr(benchmark.owner, "__doc__", None)),
        )
    _note(directory, found, ignored=ignored, skipped=skipped)


def _note(directory: str, found: Found, *, ignored: set[str], skipped: int) -> None:
    others = tuple(f"{count} {kind}" for kind, count in sorted(other_kinds(directory).items()))
    if others:
        found.notes.append(fact("adopted.other_kinds", place=directory, tool=ASV, kinds=others))
    if ignored:
        found.notes.append(fact("adopted.ignored_settings", place=directory, tool=ASV, names=tuple(sorted(ignored))))
    if skipped:
        found.notes.append(fact("adopted.skipped_by_setup", place=directory, tool=ASV, number=skipped))


def _run(benchmark: AsvBenchmark, parameters: AsvParameters, sources: tuple[object, ...]) -> Iterator[Combination]:
    """Labels of the combinations that the suite does not skip.

    Only a set-up that mentions NotImplementedError is tried; all others would cost what a whole run's set-ups cost.
    """
    may_skip = any(_mentions_skips(function) for function in all_attributes(sources, "setup"))
    for _, labels in parameters.combinations():
        if not may_skip or not _is_skipped(benchmark, dict(zip(parameters.names, labels, strict=True))):
            yield labels


def _mentions_skips(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and any(name in code.co_names for name in _SKIPS)


def _is_skipped(benchmark: AsvBenchmark, parameters: dict[str, Any]) -> bool:
    try:
        source = AsvSource(benchmark, parameters)
        with source.surroundings():
            source.set_up().close()
    except MissingTargetError:
        return True
    except Exception:  # noqa: BLE001 - a broken set-up is told when the case is measured
        return False
    return False
