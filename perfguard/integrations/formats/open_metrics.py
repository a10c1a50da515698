"""OpenMetrics text, for node_exporter's textfile collector or a Pushgateway.

Labels are few and stay the same from run to run: suite, machine, case, arm, outcome. No commit and no run: each would
make new series for ever. Gauges only, so that readers of Prometheus' older text format take it, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perfguard.integrations.formats.series import SECONDS, RunExport
from perfguard.records.result import RunResult
from perfguard.records.verdict import Outcome, Verdict
from perfguard.units import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    name: str
    help: str
    unit: str
    points: tuple[tuple[Mapping[str, str], float], ...]


def write(run: RunExport) -> bytes:
    """Times of both arms, effects with their intervals, outcomes, and when the last block ended."""
    common = {"suite": run.result.suite, "machine": run.result.machine_id}
    lines = [line for family in _families(run, common) for line in _lines(family)]
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _families(run: RunExport, common: Mapping[str, str]) -> Iterable[_Family]:
    verdicts = run.result.gate.verdicts if run.result.gate is not None else ()
    yield _Family(
        name="perfguard_case_time_seconds",
        help="Median seconds of one iteration.",
        unit="seconds",
        points=tuple(
            ({**common, "case": series.name, "arm": role}, series.summary.median)
            for role, suite in sorted(run.arms.items())
            for series in suite.series
            if series.unit == SECONDS and series.summary.median is not None
        ),
    )
    yield _Family(
        name="perfguard_case_effect_ratio",
        help="Candidate over baseline minus one; positive is slower.",
        unit="ratio",
        points=tuple(
            ({**common, "case": verdict.case_id, "bound": bound}, value)
            for verdict in verdicts
            for bound, value in _effects(verdict)
        ),
    )
    yield _Family(
        name="perfguard_case_outcome",
        help="1 for the outcome of the case, 0 for the others.",
        unit="",
        points=tuple(
            ({**common, "case": verdict.case_id, "outcome": outcome.value}, float(verdict.outcome is outcome))
            for verdict in verdicts
            for outcome in Outcome
        ),
    )
    yield from _run_families(run.result, run.measured_until, common)


def _effects(verdict: Verdict) -> Iterable[tuple[str, float]]:
    estimate = verdict.comparison.estimate
    if estimate is None:
        return
    logs = {"estimate": estimate.log_ratio, "lower": estimate.interval.lower, "upper": estimate.interval.upper}
    for bound, log_ratio in logs.items():
        if math.isfinite(log_ratio) and log_ratio < 50:
            yield bound, math.expm1(log_ratio)


def _run_families(result: RunResult, measured_until: float | None, common: Mapping[str, str]) -> Iterable[_Family]:
    yield _Family(
        name="perfguard_run_exit_code",
        help="Exit code of the run: 0 pass, 1 regression, 3 error, 4 inconclusive.",
        unit="",
        points=((common, float(result.exit_code)),),
    )
    yield _Family(
        name="perfguard_run_duration_seconds",
        help="Wall seconds of the run.",
        unit="seconds",
        points=((common, result.duration_s),),
    )
    if measured_until is not None:
        yield _Family(
            name="perfguard_run_measured_until_timestamp_seconds",
            help="End of the last block, seconds since the epoch.",
            unit="seconds",
            points=((common, measured_until),),
        )


def _lines(family: _Family) -> list[str]:
    if not family.points:
        return []
    return [
        f"# TYPE {family.name} gauge",
        *([f"# UNIT {family.name} {family.unit}"] if family.unit else ()),
        f"# HELP {family.name} {family.help}",
        *(f"{family.name}{_labels(labels)} {float(value)!r}" for labels, value in family.points),
    ]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
