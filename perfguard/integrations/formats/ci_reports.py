"""Verdicts for CI servers and monitoring: JUnit XML and OpenMetrics text.

JUnit has one test case for each case of the run, as GitLab, Jenkins and Azure read it. regressed, different: failure.
failed: error. inconclusive, incomparable, no-baseline: skipped. All else passes. What cannot fail a gate cannot fail
here: an advisory case that regressed or failed is skipped, with its reason. What else the reader must know, such as
rules of the gate that the candidate changes, is the suite's system-err.

OpenMetrics is for node_exporter's textfile collector or a Pushgateway. Labels are few and the same from run to run:
suite, machine, case, arm, outcome. No commit and no run: each would make new series for ever. Gauges only, so that
readers of Prometheus' older text format take it, too.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from perfguard.integrations.formats.suites import SECONDS, RunExport, utc_text
from perfguard.records.case_names import split_case_id
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.report.lines import note_lines, ops_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import printable

_ELEMENTS = {
    Outcome.REGRESSED: "failure",
    Outcome.INVALID: "failure",
    Outcome.DIFFERENT: "failure",
    Outcome.FAILED: "error",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.INCOMPARABLE: "skipped",
    Outcome.NO_BASELINE: "skipped",
}
"""The element of an outcome that is no pass."""
_COUNTS = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}


def write_junit(run: RunExport) -> bytes:
    """One test suite with the verdicts; of a run that compared nothing, with what was measured."""
    result = run.result
    root = ET.Element("testsuites", name="perfguard")
    suite = ET.SubElement(root, "testsuite", name=printable(f"perfguard.{result.suite}"))
    properties = ET.SubElement(suite, "properties")
    facts = {"verdict": result.verdict, "reason": describe_all(result.reasons), "run": result.run_id}
    facts["machine"] = result.machine_id
    for role, arm in sorted(result.arms.items()):
        facts |= {role: arm.text, **({f"{role}_torch": arm.torch} if arm.torch else {})}
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=printable(value))
    if result.gate is not None:
        _add_verdicts(suite, result, result.gate)
    else:
        for entry in result.measured:
            problem = ("error", "failed", describe(entry.problem)) if entry.problem else None
            _add_case(suite, result.suite, entry.case_id, entry.median_s, problem)
    if notes := note_lines(result):
        ET.SubElement(suite, "system-err").text = printable("\n".join(notes), keep="\n")
    for element in (root, suite):
        for name, tag in _COUNTS.items():
            element.set(name, str(sum(1 for _ in suite.iter(tag))))
        element.set("time", f"{result.duration_s:.3f}")
    if timestamp := utc_text(run.measured_until):
        suite.set("timestamp", timestamp)
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return content + b"\n"


def _add_verdicts(suite: ET.Element, result: RunResult, gate: GateResult) -> None:
    """Each case, and a test case of its own where the gate does not pass for a reason that is no case's."""
    for verdict in gate.verdicts:
        element = _ELEMENTS.get(verdict.outcome)
        is_advisory = verdict.gating is Gating.ADVISORY
        reason = f"{'advisory: ' if is_advisory else ''}{describe_all(verdict.reasons)}"
        lines = "\n".join([reason, *ops_lines(verdict, result)])
        problem = ("skipped" if is_advisory else element, verdict.outcome.value, lines) if element else None
        _add_case(suite, result.suite, verdict.case_id, verdict.comparison.candidate_median_s, problem)
    said = {verdict.outcome.value for verdict in gate.verdicts if verdict.gating is Gating.GATING}
    if gate.outcome is not GateOutcome.PASS and gate.outcome.value not in said:
        _add_case(suite, result.suite, "gate", None, ("skipped", gate.outcome.value, describe_all(gate.reasons)))


def _add_case(
    suite: ET.Element, suite_name: str, name: str, time_s: float | None, problem: tuple[str, str, str] | None
) -> None:
    """A test case; a problem is its element, type and reason."""
    classname = printable(f"perfguard.{suite_name}.{split_case_id(name).benchmark}")
    case = ET.SubElement(suite, "testcase", classname=classname, name=printable(name))
    if time_s is not None:
        case.set("time", f"{time_s:.9f}")
    if problem is not None:
        element, kind, reason = problem
        # What is not printable holds all that XML forbids: control characters, halves of surrogate pairs, U+FFFE.
        said = ET.SubElement(case, element, type=kind, message=printable(reason.partition("\n")[0]))
        said.text = printable(reason, keep="\n")


_FAMILIES = {
    "case_time_seconds": "Median seconds of one iteration.",
    "case_effect_ratio": "Candidate over baseline minus one; positive is slower.",
    "case_outcome": "1 for the outcome of the case, 0 for the others.",
    "run_exit_code": "Exit code of the run: 0 pass, 1 regression, 3 error, 4 inconclusive.",
    "run_duration_seconds": "Wall seconds of the run.",
    "run_measured_until_timestamp_seconds": "End of the last block, seconds since the epoch.",
}
"""Help by the name of a gauge, whose unit is the end of its name, where that is one."""


def write_open_metrics(run: RunExport) -> bytes:
    """Times of both arms, effects with their intervals, outcomes, and when the last block ended."""
    points = tuple(_points(run))
    common = {"suite": run.result.suite, "machine": run.result.machine_id}
    lines = []
    for family, text in _FAMILIES.items():
        name, unit = f"perfguard_{family}", family.rpartition("_")[2]
        found = [f"{name}{_labels({**common, **labels})} {value!r}" for of, labels, value in points if of == family]
        if found:
            units = [f"# UNIT {name} {unit}"] if unit in ("seconds", "ratio") else []
            lines += [f"# TYPE {name} gauge", *units, f"# HELP {name} {text}", *found]
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _points(run: RunExport) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Gauge, labels and value of each point."""
    for role, suite in sorted(run.arms.items()):
        for series in suite.series:
            if series.unit == SECONDS and series.summary.median is not None:
                yield "case_time_seconds", {"case": series.name, "arm": role}, float(series.summary.median)
    for verdict in run.result.gate.verdicts if run.result.gate else ():
        for bound, ratio in _effects(verdict):
            yield "case_effect_ratio", {"case": verdict.case_id, "bound": bound}, ratio
        for outcome in Outcome:
            is_it = float(verdict.outcome is outcome)
            yield "case_outcome", {"case": verdict.case_id, "outcome": outcome.value}, is_it
    yield "run_exit_code", {}, float(run.result.exit_code)
    yield "run_duration_seconds", {}, float(run.result.duration_s)
    if run.measured_until is not None:
        yield "run_measured_until_timestamp_seconds", {}, float(run.measured_until)


def _effects(verdict: Verdict) -> Iterator[tuple[str, float]]:
    estimate = verdict.effect
    if estimate is None:
        return
    logs = {"estimate": estimate.log_ratio, "lower": estimate.interval.lower, "upper": estimate.interval.upper}
    for bound, log_ratio in logs.items():
        if math.isfinite(log_ratio) and log_ratio < 50:
            yield bound, math.expm1(log_ratio)


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {name: printable(text).replace("\\", "\\\\").replace('"', '\\"') for name, text in labels.items()}
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "}"
