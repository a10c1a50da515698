"""Verdicts as SARIF 2.1.0, for GitHub's code scanning and editors: a result for each case that is not in order.

A result stands at the line of its first culprit; without one at the configuration, as a place is required. Its rule is
the code of that culprit, else the verdict. Source: OASIS, SARIF 2.1.0, sections 3.27 (result) and 3.49 (rule).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from perfguard import __version__
from perfguard.integrations.formats.suites import RunExport
from perfguard.records.spec import Gating
from perfguard.records.steps.ops import Attribution
from perfguard.records.verdict import Outcome, Verdict
from perfguard.report.culprits import culprit_texts, line_in_tree
from perfguard.report.explanations import explain
from perfguard.report.lines import names_in
from perfguard.report.messages.catalog import describe_all
from perfguard.units import printable

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Outcome.REGRESSED: "error",
    Outcome.INVALID: "error",
    Outcome.DIFFERENT: "error",
    Outcome.FAILED: "error",
    Outcome.INCONCLUSIVE: "note",
}
_NOWHERE = "perfguard.toml"  # Where no line is known


def write_sarif(run: RunExport) -> bytes:
    """The verdicts of a gate; no result where nothing was compared."""
    gate, result = run.result.gate, run.result
    blamed = {attribution.case_id: attribution for attribution in result.attributions}
    verdicts = [verdict for verdict in gate.verdicts if verdict.outcome in _LEVELS] if gate is not None else []
    names = names_in(result)
    found = [_result(verdict, names[verdict.case_id], blamed.get(verdict.case_id)) for verdict in verdicts]
    rules = [_rule(name) for name in dict.fromkeys(each["ruleId"] for each in found)]
    driver = {"name": "perfguard", "semanticVersion": __version__, "rules": rules}
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "automationDetails": {"id": printable(f"perfguard/{result.suite}/{result.machine_id}")},
                "results": found,
            }
        ],
    }
    return json.dumps(log, indent=1).encode() + b"\n"


def _result(verdict: Verdict, name: str, attribution: Attribution | None) -> dict[str, Any]:
    culprits = attribution.culprits if attribution is not None else ()
    rule = culprits[0].fact.code if culprits else verdict.outcome.value
    file, line = line_in_tree(attribution)
    said = [f"{name}: {describe_all(verdict.reasons)}", *(culprit_texts(attribution) if attribution else ())]
    place: dict[str, Any] = {"artifactLocation": {"uri": printable(file or _NOWHERE)}}
    place["region"] = {"startLine": line or 1}
    digest = hashlib.sha256(f"{verdict.case_id} {rule}".encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "ruleId": rule,
        "level": "note" if verdict.gating is Gating.ADVISORY else _LEVELS[verdict.outcome],
        "message": {"text": printable("\n".join(said), keep="\n")},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"perfguardCase/v1": digest},
    }


def _rule(name: str) -> dict[str, Any]:
    (meaning,) = explain(name)
    return {"id": name, "shortDescription": {"text": meaning.meaning}, "properties": {"tags": ["performance"]}}
