"""OpenMetrics text, for node_exporter's textfile collector or a Pushgateway.

Labels are few and stay the same from run to run: suite, machine, case, arm, outcome. No commit and no run: each would
make new series for ever. Gauges only, so that readers of Prometheus' older text format take it, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from perfguard.integrations.formats.series import SECONDS, RunExport
from perfguard.records.verdict import Outcome, Verdict
from perfguard.units import printable

_Points = list[tuple[Mapping[str, str], float]]
"""Labels and value of each point."""


def write(run: RunExport) -> bytes:
    """Times of both arms, effects with their intervals, outcomes, and when the last block ended."""
    result = run.result
    common = {"suite": result.suite, "machine": result.machine_id}
    verdicts = [
        ({**common, "case": verdict.case_id}, verdict) for verdict in (result.gate.verdicts if result.gate else ())
    ]
    times: _Points = [
        ({**common, "case": series.name, "arm": role}, series.summary.median)
        for role, suite in sorted(run.arms.items())
        for series in suite.series
        if series.unit == SECONDS and series.summary.median is not None
    ]
    effects: _Points = [
        ({**labels, "bound": bound}, value) for labels, verdict in verdicts for bound, value in _effects(verdict)
    ]
    outcomes: _Points = [
        ({**labels, "outcome": outcome.value}, float(verdict.outcome is outcome))
        for labels, verdict in verdicts
        for outcome in Outcome
    ]
    until: _Points = [(common, run.measured_until)] if run.measured_until is not None else []
    code_help = "Exit code of the run: 0 pass, 1 regression, 3 error, 4 inconclusive."
    until_help = "End of the last block, seconds since the epoch."
    lines = [
        *_family("case_time_seconds", "Median seconds of one iteration.", times),
        *_family("case_effect_ratio", "Candidate over baseline minus one; positive is slower.", effects),
        *_family("case_outcome", "1 for the outcome of the case, 0 for the others.", outcomes),
        *_family("run_exit_code", code_help, [(common, float(result.exit_code))]),
        *_family("run_duration_seconds", "Wall seconds of the run.", [(common, result.duration_s)]),
        *_family("run_measured_until_timestamp_seconds", until_help, until),
    ]
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _effects(verdict: Verdict) -> Iterable[tuple[str, float]]:
    estimate = verdict.effect
    if estimate is None:
        return
    logs = {"estimate": estimate.log_ratio, "lower": estimate.interval.lower, "upper": estimate.interval.upper}
    for bound, log_ratio in logs.items():
        if math.isfinite(log_ratio) and log_ratio < 50:
            yield bound, math.expm1(log_ratio)


def _family(name: str, text: str, points: _Points) -> list[str]:
    """The lines of a gauge; its unit is the end of its name, where that is one."""
    if not points:
        return []
    name, unit = f"perfguard_{name}", name.rpartition("_")[2]
    return [
        f"# TYPE {name} gauge",
        *([f"# UNIT {name} {unit}"] if unit in ("seconds", "ratio") else ()),
        f"# HELP {name} {text}",
        *(f"{name}{_labels(labels)} {float(value)!r}" for labels, value in points),
    ]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
