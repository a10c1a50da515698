"""Verdicts or raw samples as a table: CSV, or Parquet for DuckDB, pandas and polars.

Also a profile's ops: CSV, collapsed stacks for flame graphs, speedscope. The stack of an op is its phase, the parts of
its module's path, and itself.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfguard import __version__
from perfguard.errors import UsageError
from perfguard.integrations.formats.suites import RunExport
from perfguard.records.steps.ops import OpKey, OpTotal, StepPhase
from perfguard.records.verdict import Verdict
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import printable

NO_PYARROW = "Parquet is written by pyarrow, which is not installed: pip install 'perfguard[parquet]'; or use csv"
OP_COLUMNS = ("phase", "module", "op", "shapes", "dtypes", "layouts", "calls", "self_s", "source", "implementations")
"""Of the CSV of ops."""
_PHASES = list(StepPhase)
_FORMULA = ("=", "+", "-", "@")

_CASE_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("run", "suite", "machine", "case", "gating", "outcome"), str),
    **dict.fromkeys(("baseline_median_s", "candidate_median_s", "effect_ratio", "lower_ratio", "upper_ratio"), float),
    **dict.fromkeys(("interval_level", "p_regressed", "p_adjusted", "margin_ratio", "mde_ratio"), float),
    **dict.fromkeys(("blocks", "blocks_voided"), int),
    "reason": str,
}
"""Of a table with one row a case: ratios are candidate over baseline minus one, the interval's too.

Where nothing was compared, `outcome` is `measured` or `failed`, and columns of a comparison are empty.
"""
_SAMPLE_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("run", "case", "arm"), str),
    **dict.fromkeys(("block", "index"), int),
    "value_s": float,
}
"""Of a table with one row a sample of the main stage: seconds of one iteration, at its place in the block or round."""

_Row = Mapping[str, object]


def write_csv(run: RunExport) -> bytes:
    """A table with a line of names; numbers in full precision, what is unknown is empty."""
    columns, rows = _table(run)
    cells = ([_clean(row.get(name)) for name in columns] for row in rows)
    texts = ([_text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in cells)
    return _csv_text([[*columns], *texts]).encode()


def write_parquet(run: RunExport) -> bytes:
    """The same table with typed columns; UsageError where pyarrow is not installed."""
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


def _csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV with Unix line ends."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _text_cell(text: str) -> str:
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


def collapsed_stacks(totals: Iterable[OpTotal]) -> str:
    """One line for each stack, `forward;ResNet;layer1;0;conv1;aten::conv2d 123`, in whole microseconds of a step.

    Source: https://github.com/brendangregg/FlameGraph, the input of flamegraph.pl.
    """
    times_s: dict[str, float] = defaultdict(float)
    for total in totals:
        stack = ";".join(printable(part).replace(";", ":").replace(" ", "_") for part in _stack(total.key))
        times_s[stack] += total.self_s
    return "".join(f"{stack} {us}\n" for stack, time_s in sorted(times_s.items()) if (us := round(time_s * 1e6)) > 0)


def speedscope_profile(totals: Sequence[OpTotal], *, name: str) -> str:
    """A sampled profile of one step, one sample for each op, phases in their order; weights in microseconds.

    Source: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
    """
    frames: dict[tuple[str, str | None], int] = {}
    samples, weights = [], []
    for total in sorted(totals, key=lambda one: (_PHASES.index(one.key.phase), one.key.module, one.key.op)):
        *places, op = _stack(total.key)
        shown = printable(f"{op} {total.key.shapes}".rstrip())
        stack: list[tuple[str, str | None]] = [*((place, None) for place in places), (shown, total.source)]
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(total.self_s * 1e6)
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"perfguard {__version__}",
        "name": printable(name),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(text, source) for text, source in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": printable(name),
                "unit": "microseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def ops_csv(totals: Iterable[OpTotal]) -> str:
    """One row for each op, in the order given, with a header; several implementations are separated by a space."""
    rows: list[Iterable[str]] = [OP_COLUMNS]
    for total in totals:
        key = total.key
        texts = (key.phase.value, key.module, key.op, key.shapes, key.dtypes, key.layouts)
        found = (total.source or "", " ".join(total.implementations))
        numbers = (f"{total.calls:.10g}", f"{total.self_s:.9g}")
        rows.append([*map(_text_cell, texts), *numbers, *map(_text_cell, found)])
    return _csv_text(rows)


def _stack(key: OpKey) -> list[str]:
    return [key.phase.value, *(part for part in key.module.split(".") if part), key.op]


def _frame(name: str, source: str | None) -> dict[str, str | int]:
    file, _, line = (source or "").rpartition(":")
    if not (file and line.isdecimal()):
        return {"name": printable(name)}
    return {"name": printable(name), "file": printable(file), "line": int(line)}
