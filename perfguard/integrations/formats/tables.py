"""Verdicts or raw samples as a table: CSV, or Parquet for DuckDB, pandas and polars."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from perfguard.errors import UsageError
from perfguard.integrations.formats.series import RunExport
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.verdict import Verdict
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import printable

NO_PYARROW = "Parquet is written by pyarrow, which is not installed: pip install 'perfguard[parquet]'; or use csv"
_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """One case of a run."""

    run: str
    """The run."""
    suite: str
    """Its suite."""
    machine: str
    """Identity of the machine."""
    case: str
    """The case."""
    gating: str | None = None
    """`gating` or `advisory`; None where nothing was compared."""
    outcome: str
    """Value of Outcome; `measured` where nothing was compared."""
    baseline_median_s: float | None = None
    """Median seconds of one iteration."""
    candidate_median_s: float | None = None
    """The same of the candidate."""
    effect_ratio: float | None = None
    """Candidate / baseline - 1."""
    lower_ratio: float | None = None
    """Lower end of its interval."""
    upper_ratio: float | None = None
    """Upper end."""
    interval_level: float | None = None
    """Level of the interval."""
    p_regressed: float | None = None
    """One-sided p of a slowdown beyond the margin."""
    p_adjusted: float | None = None
    """The same after correction over the gating cases."""
    margin_ratio: float | None = None
    """The margin."""
    mde_ratio: float | None = None
    """Smallest effect that the run could have seen."""
    blocks: int | None = None
    """Blocks or rounds that were used."""
    blocks_voided: int | None = None
    """Blocks that were left out."""
    reason: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One sample of the main stage."""

    run: str
    """The run."""
    case: str
    """The case."""
    arm: str
    """`baseline` or `candidate`."""
    block: int | None
    """Block or round."""
    index: int
    """Position in the block's samples of this case and arm."""
    value_s: float
    """Seconds of one iteration."""


def write_csv(run: RunExport, *, samples: bool) -> bytes:
    """A table with a line of names; numbers in full precision, what is unknown is empty."""
    kind, rows = _table(run, samples=samples)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in dataclasses.fields(kind)]
    writer.writerow(names)
    writer.writerows([_cell(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue().encode()


def write_parquet(run: RunExport, *, samples: bool) -> bytes:
    """The same table with typed columns.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(NO_PYARROW) from None
    kind, rows = _table(run, samples=samples)
    types = {str: arrow.string(), float: arrow.float64(), int: arrow.int64()}
    columns = {
        name: arrow.array([_clean(getattr(row, name)) for row in rows], type=types[_plain_type(hint)])
        for name, hint in get_type_hints(kind).items()
    }
    buffer = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), buffer, compression="zstd")
    return bytes(buffer.getvalue().to_pybytes())


def _table(run: RunExport, *, samples: bool) -> tuple[type[CaseRow | SampleRow], Sequence[CaseRow | SampleRow]]:
    if samples:
        return SampleRow, _sample_rows(run)
    result = run.result
    if result.gate is not None:
        return CaseRow, [_judged(verdict, result) for verdict in result.gate.verdicts]
    return CaseRow, [_measured(entry, result) for entry in result.measured]


def _sample_rows(run: RunExport) -> list[SampleRow]:
    return [
        SampleRow(run=run.result.run_id, case=series.name, arm=role, block=process.block, index=index, value_s=value)
        for role, suite in sorted(run.arms.items())
        for series in suite.series
        for process in series.samples or ()
        for index, value in enumerate(process.values)
    ]


def _judged(verdict: Verdict, result: RunResult) -> CaseRow:
    comparison, estimate = verdict.comparison, verdict.effect
    return CaseRow(
        run=result.run_id,
        suite=result.suite,
        machine=result.machine_id,
        case=verdict.case_id,
        gating=verdict.gating.value,
        outcome=verdict.outcome.value,
        baseline_median_s=comparison.baseline_median_s,
        candidate_median_s=comparison.candidate_median_s,
        effect_ratio=_ratio(estimate.log_ratio) if estimate else None,
        lower_ratio=_ratio(estimate.interval.lower) if estimate else None,
        upper_ratio=_ratio(estimate.interval.upper) if estimate else None,
        interval_level=estimate.interval.level if estimate else None,
        p_regressed=comparison.p_regressed,
        p_adjusted=verdict.p_adjusted,
        margin_ratio=comparison.margin_ratio,
        mde_ratio=verdict.mde_ratio,
        blocks=estimate.blocks if estimate else None,
        blocks_voided=comparison.blocks_voided,
        reason=describe_all(verdict.reasons),
    )


def _measured(entry: CaseMeasured, result: RunResult) -> CaseRow:
    return CaseRow(
        run=result.run_id,
        suite=result.suite,
        machine=result.machine_id,
        case=entry.case_id,
        outcome="failed" if entry.problem else "measured",
        candidate_median_s=entry.median_s,
        blocks=entry.rounds,
        reason=describe(entry.problem) if entry.problem else "",
    )


def _ratio(log_ratio: float) -> float | None:
    """An effect from its logarithm; None where it is unknown or too large for a number."""
    return math.expm1(log_ratio) if log_ratio < 50 and math.isfinite(log_ratio) else None


def _clean(value: object) -> object:
    """Text without control characters; None for numbers that are none."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: object) -> str:
    clean = _clean(value)
    if isinstance(clean, str):
        # A spreadsheet would run it as a formula.
        return f"'{clean}" if clean.startswith(_FORMULA) else clean
    return "" if clean is None else repr(clean)


def _plain_type(hint: Any) -> type:
    """The type of a column that may be None."""
    arguments = [kind for kind in getattr(hint, "__args__", ()) if kind is not type(None)]
    found: type = arguments[0] if arguments else hint
    return found
