"""`customSmallerIsBetter` of github-action-benchmark: a list of `{name, unit, value, range, extra}`.

Its charts compare numbers across commits, so the unit is always the same. Source: src/extract.ts of
benchmark-action/github-action-benchmark.
"""

from __future__ import annotations

import json
import statistics

from perfguard.errors import StoreError
from perfguard.integrations.formats.series import SECONDS, ImportedSeries, ImportedSuite, RunExport, process_medians
from perfguard.records.verdict import Verdict
from perfguard.units import format_effect, printable

_UNIT = "ms"
_MS = 1e3


def write(run: RunExport, suite: ImportedSuite) -> bytes:
    """Median time of each case; the standard deviation between processes as range, the verdict as extra.

    Raises:
        StoreError: There is nothing to write.
    """
    verdicts = {verdict.case_id: verdict for verdict in run.result.gate.verdicts} if run.result.gate else {}
    entries = [
        _entry(series, verdicts.get(series.name))
        for series in suite.series
        if series.unit == SECONDS and series.summary.median is not None
    ]
    if not entries:
        raise StoreError(f"{suite.source} holds no times that the format could hold")
    return (json.dumps(entries, indent=1) + "\n").encode()


def _entry(series: ImportedSeries, verdict: Verdict | None) -> dict[str, object]:
    found: dict[str, object] = {
        "name": printable(series.name),
        "unit": _UNIT,
        "value": (series.summary.median or 0.0) * _MS,
    }
    medians = process_medians(series.samples or ())
    if len(medians) > 1:
        found["range"] = f"± {statistics.stdev(medians) * _MS:.4g}"
    lines = [f"processes: {len(medians)}"]
    if verdict is not None:
        lines.append(f"verdict: {verdict.outcome.value}")
        if verdict.effect is not None:
            lines.append(f"effect: {format_effect(verdict.effect.log_ratio)}")
    found["extra"] = "\n".join(lines)
    return found
