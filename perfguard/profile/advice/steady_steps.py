"""What a steady step should have behind it: new memory, new primitives, compilations."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import on_process, severity_by
from perfguard.profile.advice.trials import with_variables
from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.facts import Severity, fact
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import OpCountKind, OpCountRow

SECONDS_PER_FAULT = 1.5e-6
"""What a fault took where it was measured: LayerNorm on 512 x 1024, forward and backward, one thread of a guest of an
AMD EPYC: 240 to 247 us without faults, up to 527 us with up to 184 of them. Only used to tell many faults from few."""
LEAST_FAULT_SHARE = 0.02
"""Part of a step that its faults would take at that price, from which they are told: the price is another elsewhere, so
half of it must still be worth telling."""
KEEPING_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
"""With these, glibc takes memory once and keeps it."""
CAPACITY_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
LARGE_CAPACITY = "16384"
"""More primitives than a step has calls of oneDNN, so that what still misses is new."""

_COMPILER_EVENTS = {"graph_break": "graph_breaks", "recompile": "recompiles"}
"""Events of the compiler that cost something, with their codes; the others count what it did as it should."""


def allocator_faults(evidence: Evidence) -> list[Finding]:
    """Memory that is given back to the kernel and taken again in every step: page faults."""
    faults = evidence.faults or 0.0
    share = evidence.ratio_of(faults * SECONDS_PER_FAULT)
    if share is None or share < LEAST_FAULT_SHARE:
        return []
    keeps_memory = _keeps_memory(evidence)
    production = EnvProfile.PRODUCTION
    command = None if keeps_memory else with_variables(evidence.target, KEEPING_VARIABLES, profile=production)
    return on_process(
        evidence,
        "allocator_faults",
        fact("seen.page_faults", faults=faults, fault_s=SECONDS_PER_FAULT, part_share=share),
        severity=severity_by(share),
        command=command,
        variables=() if keeps_memory else tuple(f"{name}={value}" for name, value in KEEPING_VARIABLES.items()),
    )


def _keeps_memory(evidence: Evidence) -> bool:
    environment = evidence.environment
    tunables = environment.get("GLIBC_TUNABLES", "")
    return all(name in environment for name in KEEPING_VARIABLES) or "trim_threshold" in tunables


def primitive_cache_misses(evidence: Evidence) -> list[Finding]:
    """Primitives that oneDNN makes again, because shapes keep changing or its cache is too small."""
    missed = _rows(evidence, OpCountKind.PRIMITIVE, CACHE_MISS)
    if not missed:
        return []
    capacity = evidence.environment.get(CAPACITY_VARIABLE)
    problems = tuple(sorted({row.detail for row in missed}))
    seen = [fact("seen.cache_misses", misses=sum(row.count for row in missed), problems=problems)]
    if capacity is not None:
        seen.append(fact("seen.variables", variables=(f"{CAPACITY_VARIABLE}={capacity}",)))
    return on_process(
        evidence,
        "primitive_cache_misses",
        *seen,
        severity=Severity.NOTABLE,
        places=[(row.phase, row.module) for row in missed],
        command=with_variables(evidence.target, {CAPACITY_VARIABLE: LARGE_CAPACITY}),
    )


def compiler_events(evidence: Evidence) -> list[Finding]:
    """Code that torch.compile could not take in one piece, or had to take again."""
    found = []
    for name, code in _COMPILER_EVENTS.items():
        rows = _rows(evidence, OpCountKind.COMPILE, name)
        reasons = tuple(row.detail for row in rows if row.detail)
        seen = fact("seen.compiler_events", times=sum(row.count for row in rows), reasons=reasons)
        found += on_process(evidence, code, seen, severity=Severity.INFO) if rows else []
    return found


def _rows(evidence: Evidence, kind: OpCountKind, name: str) -> list[OpCountRow]:
    rows = evidence.op_counts.rows if evidence.op_counts is not None else ()
    return [row for row in rows if row.kind is kind and row.name == name]
