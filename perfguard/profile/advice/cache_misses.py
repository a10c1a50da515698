"""Primitives that oneDNN makes anew in a steady step, because shapes keep changing or its cache is too small."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import listed, where
from perfguard.profile.advice.rule import Rule
from perfguard.profile.advice.subject import with_variables
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.residue import Place
from perfguard.profile.op_counts.census import CACHE_MISS
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.ops import CensusKind

ID = "primitive-cache-misses"
CAPACITY_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
LARGE_CAPACITY = "16384"
"""More primitives than a step has calls of oneDNN, so that what still misses is new."""

_GAIN = Gain(
    text="conv_transpose1d on inputs of changing length took 0.24 instead of 0.067 s once each length needed a new "
    "primitive",
    source="pytorch#133304",
)


def _find(evidence: Evidence) -> list[Finding]:
    rows = evidence.census.rows if evidence.census is not None else ()
    missed = [row for row in rows if row.kind is CensusKind.PRIMITIVE and row.name == CACHE_MISS]
    if not missed:
        return []
    capacity = evidence.environment.get(CAPACITY_VARIABLE)
    seen = [f"{sum(row.count for row in missed):,} a step: {listed(sorted({row.detail for row in missed}))}"]
    if capacity is not None:
        seen.append(f"{CAPACITY_VARIABLE}={capacity}")
    return [
        Finding(
            id=ID,
            title="oneDNN makes primitives anew in a steady step",
            severity=Severity.NOTABLE,
            seen=tuple(seen),
            where=where(Place(phase=row.phase, module=row.module) for row in missed),
            ops=(),
            share=None,
            gain=_GAIN,
            trial=with_variables(
                evidence.subject,
                {CAPACITY_VARIABLE: LARGE_CAPACITY},
                "a larger cache; where that does not help, shapes are new in each step: pad batches to a few lengths",
            ),
        )
    ]


RULE = Rule(
    id=ID,
    finds="misses of oneDNN's primitive cache in steady steps",
    find=_find,
    changes=frozenset({ChangeRule.CACHE_MISSES}),
)
