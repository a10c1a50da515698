"""`perfguard import`: files of other tools looked at, and two of them compared."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perfguard.config import LoadedConfig
from perfguard.errors import StoreError, UsageError
from perfguard.gate.paired.judging import policy_of
from perfguard.gate.rules.compare import compare_rounds
from perfguard.gate.rules.policy import decide_cases
from perfguard.integrations.formats import asv_results, charts, one_process, pyperf_json, pytorch_records, suites
from perfguard.integrations.formats.reading import MAX_FILE_BYTES, parse
from perfguard.integrations.formats.suites import Difference, ImportedComparison, ImportedSeries, ImportedSuite
from perfguard.records.facts import Fact, fact
from perfguard.records.run import Round
from perfguard.records.spec import Case
from perfguard.records.verdict import Outcome, Policy, Verdict
from perfguard.report.messages.catalog import describe
from perfguard.units import printable

AUTO = "auto"
STDIN = "-"
MIN_PROCESSES = 2  # Fewer say nothing on how processes differ
_UNKNOWN_SPEED = 1.0
"""Stands for the control workload where none was timed: the same on both sides, so it says that the machine was as
fast."""

_DIFFERENCES = {
    Outcome.REGRESSED: Difference.SLOWER,
    Outcome.IMPROVED: Difference.FASTER,
    Outcome.UNCHANGED: Difference.EQUAL,
    Outcome.UNTOUCHED: Difference.EQUAL,
    Outcome.SAME_CODE: Difference.EQUAL,
}


class Reader(NamedTuple):
    """One format that can be imported: whether a document has its shape, and what reads it with its `source`."""

    recognises: Callable[[Any], bool]
    read: Callable[..., ImportedSuite]


def _holds(document: Any, *keys: str) -> bool:
    """Whether it is an object with these keys, whose benchmarks, if it holds any, are a list."""
    return (
        isinstance(document, dict) and {*keys} <= document.keys() and isinstance(document.get("benchmarks", []), list)
    )


def _each_holds(documents: list[Any], *keys: str) -> bool:
    return bool(documents) and all(_holds(document, *keys) for document in documents)


READERS: dict[str, Reader] = {
    "pyperf": Reader(
        lambda found: _holds(found, "benchmarks", "version") and _each_holds(found["benchmarks"], "runs"),
        pyperf_json.read,
    ),
    "asv": Reader(lambda found: _holds(found, "result_columns", "results"), asv_results.read),
    "pytest-benchmark": Reader(lambda found: _holds(found, "benchmarks", "machine_info"), one_process.read_pytest),
    "google-benchmark": Reader(lambda found: _holds(found, "benchmarks", "context"), one_process.read_google),
    "pytorch": Reader(
        lambda found: _each_holds(found if isinstance(found, list) else [found], "benchmark", "model", "metric"),
        pytorch_records.read,
    ),
    "bencher": Reader(charts.is_bencher, charts.read_bencher),
}
"""By name, in the order in which a document is tried; no document has the shape of two of them."""


def import_suite(content: bytes, *, source: str, name: str = AUTO) -> ImportedSuite:
    """What a file holds, in the format `name`, a key of `READERS`, or `auto`; `source` is the file as named.

    Raises:
        StoreError: It cannot be read, or is of none of the formats.
    """
    document = parse(content, source=source)
    if name != AUTO:
        return READERS[name].read(document, source=source)
    for reader in READERS.values():
        if reader.recognises(document):
            return reader.read(document, source=source)
    raise StoreError(
        f"{source} has the shape of none of {', '.join(READERS)}; --format NAME says what is wrong with it as one of "
        "them"
    )


def import_files(loaded: LoadedConfig, names: Sequence[str], *, name: str = AUTO) -> suites.ImportReport:
    """What one file holds and lacks; with two files also the second against the first, by the configured margins.

    A file is a path, or `-` for stdin; the format `name` is a key of `READERS`, or `auto`.

    Raises:
        StoreError: A file cannot be read.
        UsageError: The two cannot be compared; the message says why.
    """
    read = tuple(import_suite(_content(path), source=_source(path), name=name) for path in names)
    objections = tuple(objections_of(suite) for suite in read)
    if len(read) < 2:
        return suites.ImportReport(suites=read, objections=objections)
    comparisons = compare_suites(read[0], read[1], policy_of(loaded.config))
    notes = [fact("import.not_a_gate")]
    old, new = (suite.machine_id or suite.machine for suite in read)
    if old is not None and new is not None and old != new:
        notes.insert(0, fact("import.other_machine", baseline=old, candidate=new))
    if any(entry.log_ratio is not None and not entry.has_control for entry in comparisons):
        notes.insert(0, fact("import.speed_assumed"))
    return suites.ImportReport(suites=read, objections=objections, comparisons=comparisons, notes=tuple(notes))


def _source(path: str) -> str:
    return "stdin" if path == STDIN else printable(path)


def _content(path: str) -> bytes:
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{_source(path)} cannot be read: {reason}") from error


def compare_suites(baseline: ImportedSuite, candidate: ImportedSuite, policy: Policy) -> tuple[ImportedComparison, ...]:
    """The times that two files have in common, compared as rounds of a stored baseline are.

    Where a process timed no control workload, the machine is taken to have been as fast both times; each comparison
    says so.

    Raises:
        UsageError: They have no time in common, or none that can be compared.
    """
    old, new = _times(baseline), _times(candidate)
    common = [name for name in old if name in new]
    if not common:
        raise UsageError(
            f"{baseline.source} and {candidate.source} have no time in common: the first has {_named(old)}, the second "
            f"{_named(new)}"
        )
    objections: dict[str, Fact] = {}
    for name in common:
        found = comparison_objection(old[name], place=baseline.source)
        found = found or comparison_objection(new[name], place=candidate.source)
        if found:
            objections[name] = found
    if len(objections) == len(common):
        name, why = next(iter(objections.items()))
        more = f" (and {len(common) - 1} more)" if len(common) > 1 else ""
        raise UsageError(f"the two cannot be compared: {name}{more}: {describe(why)}")
    timed = {name: has_control(old[name]) and has_control(new[name]) for name in common if name not in objections}
    before, after = ({name: _rounds(side[name], with_control=timed[name]) for name in timed} for side in (old, new))
    comparisons = compare_rounds(before, after, [Case(benchmark=name, target="") for name in timed], policy)
    verdicts = {verdict.case_id: verdict for verdict in decide_cases(comparisons, policy)}
    return tuple(
        _compared(verdicts[name], has_control=timed[name])
        if name in verdicts
        else ImportedComparison(name=name, difference=Difference.NOT_COMPARED, reasons=(objections[name],))
        for name in common
    )


def _compared(verdict: Verdict, *, has_control: bool) -> ImportedComparison:
    comparison, estimate = verdict.comparison, verdict.effect
    return ImportedComparison(
        name=verdict.case_id,
        difference=_DIFFERENCES.get(verdict.outcome, Difference.UNDECIDED),
        reasons=verdict.reasons,
        baseline_median_s=comparison.baseline_median_s,
        candidate_median_s=comparison.candidate_median_s,
        log_ratio=estimate.log_ratio if estimate else None,
        lower=estimate.interval.lower if estimate else -math.inf,
        upper=estimate.interval.upper if estimate else math.inf,
        p_adjusted=verdict.p_adjusted,
        has_control=has_control,
    )


def _rounds(series: ImportedSeries, *, with_control: bool) -> tuple[Round, ...]:
    return tuple(
        Round(
            values_s=process.values,
            control_s=process.control_s if with_control else (_UNKNOWN_SPEED,),
            started_at=process.started_at or 0.0,
        )
        for process in series.samples or ()
    )


def _times(suite: ImportedSuite) -> dict[str, ImportedSeries]:
    return {
        series.name if series.metric == suites.TIME else f"{series.name} {series.metric}": series
        for series in suite.series
        if series.unit == suites.SECONDS
    }


def _named(series: Mapping[str, ImportedSeries]) -> str:
    names = list(series)
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return (", ".join(names[:2]) or "none") + more


def comparison_objection(series: ImportedSeries, *, place: str | None = None) -> Fact | None:
    """Why a series cannot be compared with another file's at all; None where it can.

    `place` is the file, where two are compared.
    """
    if series.unit != suites.SECONDS:
        return fact("import.not_a_time", place=place)
    if series.samples is None:
        return fact("import.only_a_summary", place=place)
    if not series.has_processes:
        return fact("import.unknown_processes", place=place)
    if len(series.samples) < MIN_PROCESSES:
        return fact("import.too_few_processes", place=place, needed_processes=MIN_PROCESSES)
    return None


def gate_objection(series: ImportedSeries) -> Fact | None:
    """Why a gate could not judge by a series; None where it could, as by rounds of a stored baseline."""
    return comparison_objection(series) or (None if has_control(series) else fact("import.no_control"))


def has_control(series: ImportedSeries) -> bool:
    """Whether every process timed the control workload."""
    return bool(series.samples) and all(process.control_s for process in series.samples or ())


def objections_of(suite: ImportedSuite) -> tuple[suites.Objection, ...]:
    """What a gate would object to, each with its series; empty where it could judge by all of them."""
    found = by_fact((series.name, objection) for series in suite.series if (objection := gate_objection(series)))
    return tuple(suites.Objection(fact=why, series=tuple(names)) for why, names in found)


def by_fact(found: Iterable[tuple[str, Fact]]) -> list[tuple[Fact, list[str]]]:
    """Each fact once, by its code, with the names that it holds for; the last fact of a code stands for all."""
    facts: dict[str, Fact] = {}
    names: dict[str, list[str]] = {}
    for name, why in found:
        facts[why.code] = why
        names.setdefault(why.code, []).append(name)
    return [(facts[code], names[code]) for code in names]
