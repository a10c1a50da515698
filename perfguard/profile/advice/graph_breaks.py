"""Code that torch.compile could not take in one piece, or had to take again."""

from __future__ import annotations

from collections.abc import Sequence

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed
from perfguard.profile.advice.rule import Rule
from perfguard.profile.advice.subject import after_edit
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding, Severity
from perfguard.records.steps.ops import CensusKind, CensusRow
from perfguard.units import format_count

ID = "graph-breaks"
GRAPH_BREAK, RECOMPILE = "graph_break", "recompile"
"""Events of the compiler that cost something; the others count what it did as it should."""

_CHANGES = {
    GRAPH_BREAK: "take what breaks the graph out of the compiled part: printing, .item(), branches on values of "
    "tensors",
    RECOMPILE: "keep shapes and plain Python values the same from step to step, or mark them with "
    "torch._dynamo.mark_dynamic",
}
_TITLES = {
    GRAPH_BREAK: "the compiled graph is broken",
    RECOMPILE: "code is compiled more than once",
}


def _find(evidence: Evidence) -> list[Finding]:
    rows = evidence.census.rows if evidence.census is not None else ()
    events = {name: [row for row in rows if row.kind is CensusKind.COMPILE and row.name == name] for name in _TITLES}
    return [_finding(evidence, name, found) for name, found in events.items() if found]


def _finding(evidence: Evidence, name: str, rows: Sequence[CensusRow]) -> Finding:
    times = format_count(sum(row.count for row in rows), "time")
    reasons = listed(row.detail for row in rows if row.detail)
    return Finding(
        id=ID,
        title=_TITLES[name],
        severity=Severity.HINT,
        seen=(f"{times}{f': {reasons}' if reasons else ''}",),
        where="",
        ops=(),
        share=None,
        gain=UNKNOWN_GAIN,
        trial=after_edit(evidence.subject, _CHANGES[name]),
    )


RULE = Rule(
    id=ID,
    finds="graph breaks and recompilations of torch.compile",
    find=_find,
    changes=frozenset({ChangeRule.COMPILE}),
)
