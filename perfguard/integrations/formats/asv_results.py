"""asv's results files, version 2: one file for each commit, machine and environment.

`results` maps a benchmark to a row whose columns `result_columns` names; a benchmark with parameters has one value for
each element of their product. Names of parameters, units and kinds are in another file, `benchmarks.json`.
Source: asv/results.py and asv_runner/statistics.py of airspeed-velocity.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from perfguard import __version__
from perfguard.codec import from_builtins
from perfguard.errors import StoreError
from perfguard.integrations.formats import reading, suites
from perfguard.records.facts import fact
from perfguard.units import printable

_VERSION = 2
COLUMNS = (
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
)
"""In asv's own order; it refuses a file with other names."""
_TIMED = re.compile(r"^(time|timeraw)_|^(Time|Timeraw)[A-Z_]")
_MEMORY = re.compile(r"^(mem|peakmem)_|^(Mem|PeakMem)[A-Z_]")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class _File(msgspec.Struct):
    result_columns: list[str]
    results: dict[str, list[Any]]
    params: dict[str, Any] = {}
    commit_hash: str | None = None
    python: str | None = None


def read(document: Any, *, source: str) -> suites.ImportedSuite:
    """All benchmarks of a file, one series for each element of the product of their parameters.

    Values that asv has as null (failed), NaN (skipped) or text are left out, and said so.
    """
    version = document.get("version") if isinstance(document, dict) else None
    if version != _VERSION or isinstance(version, bool):
        raise StoreError(
            f"{source} has version {version!r} of asv's results, only {_VERSION} can be read; `asv update` rewrites "
            "older ones"
        )
    file = from_builtins(document, _File, source=source)
    is_ours = "perfguard" in file.params
    series: list[suites.ImportedSeries] = []
    failed: list[str] = []
    for name, values in file.results.items():
        reading.checked_name(name, source=source)
        row = dict(zip(file.result_columns, values, strict=False))  # asv cuts empty columns off the end
        if row.get("result") is None:
            failed.append(name)
            continue
        for parameters, at in _results(name, row, source=source):
            shown = f"{name}({', '.join(parameters)})"[: reading.MAX_NAME] if parameters else name
            value = at["result"]
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:  # noqa: PLR0124 - nan
                kind = name.rpartition(".")[2]
                series.append(
                    _series(shown, kind, parameters, at, is_time=is_ours or bool(_TIMED.match(kind)), source=source)
                )
            else:
                failed.append(shown)
        if len(series) + len(failed) > reading.MAX_SERIES:
            raise StoreError(f"{source} holds more than {reading.MAX_SERIES} series")
    machine = file.params.get("machine")
    return reading.checked_suite(
        "asv",
        source,
        series,
        version=str(_VERSION),
        commit=file.commit_hash,
        machine=reading.text_or_none(file.params.get("cpu"), machine),
        machine_id=machine if is_ours else None,
        python=file.python,
        torch=file.params.get("torch"),
        what_is_missing=reading.left_out_failed(failed),
    )


def _results(name: str, row: dict[str, Any], *, source: str) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """The chosen parameters of each result, first parameter slowest, and what the columns hold at its place."""
    results, axes = row["result"], row.get("params") or []
    if not isinstance(results, list):
        raise StoreError(f"{source}: {printable(name)} has no list of results")
    if not isinstance(axes, list) or not all(isinstance(axis, list) for axis in axes):
        raise StoreError(f"{source}: the parameters of {printable(name)} are no list of lists")
    expected = math.prod(len(axis) for axis in axes)
    if expected != len(results):
        raise StoreError(
            f"{source}: {printable(name)} has {len(results)} results for {expected} combinations of its parameters"
        )
    columns = {column: row.get(column) for column in ("result", *COLUMNS[5:12])}
    return [
        (
            tuple(printable(str(value)) for value in chosen),
            {
                column: values[index] if isinstance(values, list) and index < len(values) else None
                for column, values in columns.items()
            },
        )
        for index, chosen in enumerate(itertools.product(*axes))
    ]


def _series(
    name: str, kind: str, parameters: tuple[str, ...], at: dict[str, Any], *, is_time: bool, source: str
) -> suites.ImportedSeries:
    unit = suites.SECONDS if is_time else "B" if _MEMORY.match(kind) else ""
    median = from_builtins(at["result"], float, source=f"{source}: the result of {printable(name)}")
    reading.checked_values((median,), name=name, source=source, unit=unit)
    fields: dict[str, Any] = {
        "parameters": tuple((f"param{number}", value) for number, value in enumerate(parameters, 1)),
        "metric": suites.TIME if is_time else kind,
        "unit": unit,
        "has_processes": False,
        "inner_loops": reading.count_or_none(at["stats_number"]) or None,
    }
    missing = () if is_time or unit else (fact("import.no_unit", kept_in="benchmarks.json"),)
    sampled = f"{source}: the samples of {printable(name)}"
    values = from_builtins(at["samples"], list[float], source=sampled) if at["samples"] is not None else []
    if values:
        samples = (suites.ProcessSamples(values=reading.checked_values(values, name=name, source=source, unit=unit)),)
        return suites.series_of_samples(name, samples, what_is_missing=missing, **fields)
    summary = suites.SeriesSummary(
        median=median,
        q25=reading.number_or_none(at["stats_q_25"]),
        q75=reading.number_or_none(at["stats_q_75"]),
        lower=reading.number_or_none(at["stats_ci_99_a"]),
        upper=reading.number_or_none(at["stats_ci_99_b"]),
    )
    return suites.ImportedSeries(
        name=name,
        samples=None,
        summary=summary,
        n=reading.count_or_none(at["stats_repeat"]),
        what_is_missing=(*missing, fact("import.no_samples", option="asv run --record-samples")),
        **fields,
    )


def write(run: suites.RunExport) -> bytes:
    """A results file of one arm; each case is a benchmark without parameters, under its full id."""
    suite = run.suite
    if run.commit is None or not _COMMIT.fullmatch(run.commit):
        raise StoreError(
            "asv files its results by commit, and this arm was not measured at one: it holds changes that are not "
            "committed, or lies outside git; name one: --commit $(git rev-parse HEAD)"
        )
    until_ms = round((run.measured_until or 0.0) * 1000)  # as JavaScript counts
    rows = {printable(s.name): _row(s, until_ms) for s in suite.series if s.unit == suites.SECONDS and s.samples}
    if not rows:
        raise StoreError(f"{suite.source} holds no times that asv's format could hold")
    python = suite.python or ""
    document = {
        "commit_hash": run.commit,
        "env_name": f"perfguard-py{python}" if python else "perfguard",
        "date": until_ms,
        "params": {
            "arch": "",
            "cpu": printable(run.result.machine),
            "machine": run.result.machine_id,
            "num_cpu": str(len(run.result.cpus)),
            "os": "",
            "perfguard": __version__,
            "python": python,
            "ram": "",
            "torch": suite.torch or "",
        },
        "python": python,
        "requirements": {},
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": rows,
        "durations": {},
        "version": _VERSION,
    }
    return (json.dumps(document) + "\n").encode()  # with the literal Infinity where asv writes it, too


def _row(series: suites.ImportedSeries, until_ms: int) -> list[Any]:
    values = [value for process in series.samples or () for value in process.values]
    ordered = sorted(values)
    at_places: list[Any] = [
        *median_interval(ordered),
        suites.quantile(ordered, 0.25),
        suites.quantile(ordered, 0.75),
        series.inner_loops or 1,
        len(values),
        values,
    ]
    return [[suites.quantile(ordered, 0.5)], [], "1", until_ms, None, *([value] for value in at_places)]


def median_interval(ordered: Sequence[float], miss: float = 0.01) -> tuple[float, float]:
    """Order statistics that hold the median with a chance of at least `1 - miss`; infinite ends with too few values.

    Args:
        ordered: Ascending, not empty.
        miss: Chance that the median lies outside.

    Source: the interval that asv puts in its files. Assumes: independent values, which samples of one process are not;
        it is written because asv reads it, and perfguard judges by nothing like it.
    """
    n = len(ordered)
    below, rank = 0.0, 0
    while rank < n:
        below += math.exp(math.lgamma(n + 1) - math.lgamma(rank + 1) - math.lgamma(n - rank + 1) - n * math.log(2))
        if below > miss / 2:
            break
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else (-math.inf, math.inf)
