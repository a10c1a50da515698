"""JUnit XML, as GitLab, Jenkins and Azure read it: one test case for each case of the run.

regressed, different: failure. failed: error. inconclusive, incomparable, no-baseline: skipped. All else passes. What
cannot fail a gate cannot fail here: an advisory case that regressed or failed is skipped, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from perfguard.integrations.formats.case_names import split_case_id
from perfguard.integrations.formats.moments import utc_text
from perfguard.integrations.formats.series import RunExport
from perfguard.records.result import CaseMeasured, RunResult
from perfguard.records.spec import Gating
from perfguard.records.verdict import GateOutcome, GateResult, Outcome, Verdict
from perfguard.report.lines import ops_lines
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestCase:
    name: str
    time_s: float | None = None
    element: str | None = None
    """`failure`, `error` or `skipped`; None for a pass."""
    kind: str = ""
    reason: str = ""


def write(run: RunExport) -> bytes:
    """One test suite with the verdicts; of a run that compared nothing, with what was measured."""
    result = run.result
    cases = _judged(result.gate, result) if result.gate is not None else [_measured(entry) for entry in result.measured]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.element == "failure" for case in cases)),
        "errors": str(sum(case.element == "error" for case in cases)),
        "skipped": str(sum(case.element == "skipped" for case in cases)),
        "time": f"{result.duration_s:.3f}",
    }
    suite = {"name": f"perfguard.{result.suite}", **counts, "timestamp": utc_text(run.measured_until)}
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites{_attributes({'name': 'perfguard', **counts})}>",
        f"  <testsuite{_attributes(suite)}>",
        "    <properties>",
        *(f"      <property{_attributes({'name': n, 'value': v})}/>" for n, v in _properties(result).items()),
        "    </properties>",
        *(line for case in cases for line in _lines(case, result.suite)),
        "  </testsuite>",
        "</testsuites>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _judged(gate: GateResult, result: RunResult) -> list[_TestCase]:
    return [*(_verdict(verdict, result) for verdict in gate.verdicts), *_gate(gate)]


def _verdict(verdict: Verdict, result: RunResult) -> _TestCase:
    element = _ELEMENTS.get(verdict.outcome)
    if element is not None and verdict.gating is Gating.ADVISORY:
        element = "skipped"
    advisory = "advisory: " if verdict.gating is Gating.ADVISORY else ""
    further = [*ops_lines(verdict, result), *([verdict.allowance] if verdict.allowance else ())]
    return _TestCase(
        name=verdict.case_id,
        time_s=verdict.comparison.candidate_median_s,
        element=element,
        kind=verdict.outcome.value,
        reason="\n".join([f"{advisory}{verdict.reason}", *further]),
    )


def _gate(gate: GateResult) -> Sequence[_TestCase]:
    """A test case of its own where the gate does not pass for a reason that is no case's."""
    said = {verdict.outcome.value for verdict in gate.verdicts if verdict.gating is Gating.GATING}
    if gate.outcome is GateOutcome.PASS or gate.outcome.value in said:
        return ()
    return (_TestCase(name="gate", element="skipped", kind=gate.outcome.value, reason=gate.reason),)


def _measured(entry: CaseMeasured) -> _TestCase:
    return _TestCase(
        name=entry.case_id,
        time_s=entry.median_s,
        element="error" if entry.problem else None,
        kind="failed",
        reason=entry.problem or "",
    )


def _properties(result: RunResult) -> dict[str, str]:
    facts = {"verdict": result.verdict, "reason": result.reason, "run": result.run_id, "machine": result.machine_id}
    for role, arm in sorted(result.arms.items()):
        facts[role] = arm.text
        if arm.torch:
            facts[f"{role}_torch"] = arm.torch
    return facts


def _lines(case: _TestCase, suite: str) -> list[str]:
    attributes = {
        "classname": f"perfguard.{suite}.{split_case_id(case.name).benchmark}",
        "name": case.name,
        "time": None if case.time_s is None else f"{case.time_s:.9f}",
    }
    if case.element is None:
        return [f"    <testcase{_attributes(attributes)}/>"]
    first = case.reason.partition("\n")[0]
    attributes_of_reason = _attributes({"type": case.kind, "message": first})
    return [
        f"    <testcase{_attributes(attributes)}>",
        f"      <{case.element}{attributes_of_reason}>{_text(case.reason)}</{case.element}>",
        "    </testcase>",
    ]


def _attributes(values: dict[str, str | None]) -> str:
    return "".join(f' {name}="{escape(printable(value))}"' for name, value in values.items() if value is not None)


def _text(text: str) -> str:
    # What is not printable holds all that XML forbids: control characters, halves of surrogate pairs, U+FFFE, U+FFFF.
    return escape(printable(text, keep="\n"), quote=False)
