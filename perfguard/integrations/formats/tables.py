"""Verdicts or raw samples as a table: CSV, or Parquet for DuckDB, pandas and polars."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfguard.errors import UsageError
from perfguard.integrations.formats.series import RunExport
from perfguard.records.verdict import Verdict
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import printable

NO_PYARROW = "Parquet is written by pyarrow, which is not installed: pip install 'perfguard[parquet]'; or use csv"
_FORMULA = ("=", "+", "-", "@")

_CASE_COLUMNS: Mapping[str, type] = {
    "run": str,
    "suite": str,
    "machine": str,
    "case": str,
    "gating": str,
    "outcome": str,
    "baseline_median_s": float,
    "candidate_median_s": float,
    "effect_ratio": float,
    "lower_ratio": float,
    "upper_ratio": float,
    "interval_level": float,
    "p_regressed": float,
    "p_adjusted": float,
    "margin_ratio": float,
    "mde_ratio": float,
    "blocks": int,
    "blocks_voided": int,
    "reason": str,
}
"""Of a table with one row a case: ratios are candidate over baseline minus one, the interval's too.

Where nothing was compared, `outcome` is `measured` or `failed`, and columns of a comparison are empty.
"""
_SAMPLE_COLUMNS: Mapping[str, type] = {
    "run": str,
    "case": str,
    "arm": str,
    "block": int,
    "index": int,
    "value_s": float,
}
"""Of a table with one row a sample of the main stage: seconds of one iteration, at its place in the block or round."""

_Row = Mapping[str, object]


def write_csv(run: RunExport) -> bytes:
    """A table with a line of names; numbers in full precision, what is unknown is empty."""
    columns, rows = _table(run)
    cells = ([_number_or_cell(row.get(name)) for name in columns] for row in rows)
    return csv_text([[*columns], *cells]).encode()


def write_parquet(run: RunExport) -> bytes:
    """The same table with typed columns.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(NO_PYARROW) from None
    names, rows = _table(run)
    types = {str: arrow.string(), float: arrow.float64(), int: arrow.int64()}
    columns = {
        name: arrow.array([_clean(row.get(name)) for row in rows], type=types[kind]) for name, kind in names.items()
    }
    buffer = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), buffer, compression="zstd")
    return bytes(buffer.getvalue().to_pybytes())


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV with Unix line ends."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def text_cell(text: str) -> str:
    """Text that a spreadsheet takes as text: names are the user's, and one may look like a formula."""
    text = printable(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _table(run: RunExport) -> tuple[Mapping[str, type], list[_Row]]:
    if run.samples:
        return _SAMPLE_COLUMNS, list(_samples(run))
    result = run.result
    common = {"run": result.run_id, "suite": result.suite, "machine": result.machine_id}
    if result.gate is not None:
        return _CASE_COLUMNS, [{**common, **_judged(verdict)} for verdict in result.gate.verdicts]
    measured = (
        {
            "case": entry.case_id,
            "outcome": "failed" if entry.problem else "measured",
            "candidate_median_s": entry.median_s,
            "blocks": entry.rounds,
            "reason": describe(entry.problem) if entry.problem else "",
        }
        for entry in result.measured
    )
    return _CASE_COLUMNS, [{**common, **row} for row in measured]


def _samples(run: RunExport) -> Iterator[_Row]:
    for role, suite in sorted(run.arms.items()):
        for series in suite.series:
            place = {"run": run.result.run_id, "case": series.name, "arm": role}
            for process in series.samples or ():
                for index, value_s in enumerate(process.values):
                    yield {**place, "block": process.block, "index": index, "value_s": value_s}


def _judged(verdict: Verdict) -> _Row:
    comparison, estimate = verdict.comparison, verdict.effect
    effect = {}
    if estimate is not None:
        effect = {
            "effect_ratio": _ratio(estimate.log_ratio),
            "lower_ratio": _ratio(estimate.interval.lower),
            "upper_ratio": _ratio(estimate.interval.upper),
            "interval_level": estimate.interval.level,
            "blocks": estimate.blocks,
        }
    return {
        "case": verdict.case_id,
        "gating": verdict.gating.value,
        "outcome": verdict.outcome.value,
        "baseline_median_s": comparison.baseline_median_s,
        "candidate_median_s": comparison.candidate_median_s,
        "p_regressed": comparison.p_regressed,
        "p_adjusted": verdict.p_adjusted,
        "margin_ratio": comparison.margin_ratio,
        "mde_ratio": verdict.mde_ratio,
        "blocks_voided": comparison.blocks_voided,
        "reason": describe_all(verdict.reasons),
        **effect,
    }


def _ratio(log_ratio: float) -> float | None:
    """An effect from its logarithm; None where it is unknown or too large for a number."""
    return math.expm1(log_ratio) if log_ratio < 50 and math.isfinite(log_ratio) else None


def _clean(value: object) -> object:
    """Text without control characters; None for numbers that are none."""
    if isinstance(value, str):
        return printable(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number_or_cell(value: object) -> str:
    if isinstance(value, str):
        return text_cell(value)
    clean = _clean(value)
    return "" if clean is None else repr(clean)
