"""JUnit XML, as GitLab, Jenkins and Azure read it: one test case for each case of the run.

regressed, different: failure. failed: error. inconclusive, incomparable, no-baseline: skipped. All else passes. What
cannot fail a gate cannot fail here: an advisory case that regressed or failed is skipped, with its reason.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from perfguard.integrations.formats.moments import utc_text
from perfguard.integrations.formats.series import RunExport
from perfguard.records.case_names import split_case_id
from perfguard.records.result import RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome
from perfguard.report.lines import ops_lines
from perfguard.report.messages.catalog import describe, describe_all
from perfguard.units import printable

_ELEMENTS = {
    Outcome.REGRESSED: "failure",
    Outcome.DIFFERENT: "failure",
    Outcome.FAILED: "error",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.INCOMPARABLE: "skipped",
    Outcome.NO_BASELINE: "skipped",
}
"""The element of an outcome that is no pass."""


def write(run: RunExport) -> bytes:
    """One test suite with the verdicts; of a run that compared nothing, with what was measured."""
    result = run.result
    root = ET.Element("testsuites", name="perfguard")
    suite = ET.SubElement(root, "testsuite", name=printable(f"perfguard.{result.suite}"))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(result).items():
        ET.SubElement(properties, "property", name=name, value=printable(value))
    if result.gate is not None:
        _add_verdicts(suite, result, result.gate)
    else:
        for entry in result.measured:
            problem = ("error", "failed", describe(entry.problem)) if entry.problem else None
            _add_case(suite, result.suite, entry.case_id, entry.median_s, problem)
    counts = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for element in (root, suite):
        for name, tag in counts.items():
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


def _properties(result: RunResult) -> dict[str, str]:
    facts = {
        "verdict": result.verdict,
        "reason": describe_all(result.reasons),
        "run": result.run_id,
        "machine": result.machine_id,
    }
    for role, arm in sorted(result.arms.items()):
        facts[role] = arm.text
        if arm.torch:
            facts[f"{role}_torch"] = arm.torch
    return facts
