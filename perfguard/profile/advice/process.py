"""What surrounds the ops: threads and CPUs, data loaders, page faults, oneDNN's primitive cache, the compiler."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.hints import Hint, severity_by
from perfguard.profile.op_counts.steady import CACHE_MISS
from perfguard.records.facts import Severity, fact
from perfguard.records.machine.fingerprint import QuotaState
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.ops import PYTHON_OP, OpCountKind, OpCountRow, StepPhase

LEAST_LOADING_SHARE = 0.1
"""Part of a step in loading from which it is reported: a batch must be assembled in any case, and of less than a tenth
of a step a cheaper way could win little. A judgement, not a measurement."""
SECONDS_PER_FAULT = 1.5e-6
"""What a fault took where it was measured: LayerNorm on 512 x 1024, forward and backward, one thread of a guest of an
AMD EPYC: 240 to 247 us without faults, up to 527 us with up to 184 of them. Only distinguishes many faults from few."""
LEAST_FAULT_SHARE = 0.02
"""Part of a step that its faults would take at that price, from which they are reported: the price differs between
machines, so half of it must still be worth a report."""
KEEPING_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
"""With these, glibc takes memory once and keeps it."""
CAPACITY_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
LARGE_CAPACITY = "16384"  # More primitives than a step has calls of oneDNN, so that what still misses is new

_MOSTLY = 0.8  # Part of the loading time in no op from which it may be anything, not only loading
_COMPILER_EVENTS = {"graph_break": "graph_breaks", "recompile": "recompiles"}
"""Events of the compiler that cost something, with their codes; the others count what it did as it should."""


def thread_count(evidence: Evidence) -> Iterator[Hint]:
    """More or fewer threads than CPUs."""
    threads, cpus = evidence.threads or 0, evidence.cpus
    limits = evidence.fingerprint.limits if evidence.fingerprint is not None else None
    quota_cpus = limits.quota_cpus if limits is not None and limits.quota is QuotaState.LIMITED else None
    if threads < 1:
        return
    code, severity, exceeded = "threads", Severity.GRAVE, None
    if cpus is not None and threads > cpus:
        wanted = cpus
    elif quota_cpus is not None and threads > math.ceil(quota_cpus):
        wanted, exceeded = math.floor(quota_cpus), quota_cpus
    elif cpus is not None and threads < min(cpus, quota_cpus or math.inf):
        code, severity, wanted = "idle_cpus", Severity.INFO, cpus
    else:
        return
    wanted = max(1, wanted)
    yield Hint(
        code,
        [fact("seen.threads", threads=threads, cpus=cpus, quota_cpus=exceeded)],
        severity=severity,
        variables={"OMP_NUM_THREADS": str(wanted), "MKL_NUM_THREADS": str(wanted)},
        profile=EnvProfile.PRODUCTION,
        values={"wanted": wanted},
    )


def input_pipeline(evidence: Evidence) -> Iterator[Hint]:
    """Steps that wait for their data, and loader processes that take the CPUs of the training threads."""
    loading = [total for total in evidence.totals if total.key.phase is StepPhase.LOAD]
    loading_s = evidence.seconds_of(loading)
    python_s = evidence.seconds_of(total for total in loading if total.key.op == PYTHON_OP)
    code = "python_before_model" if python_s >= _MOSTLY * loading_s else "input_pipeline"
    seen = fact("seen.before_model", time_s=loading_s, python_s=python_s or None)
    yield Hint(code, [seen], ops=loading, least_share=LEAST_LOADING_SHARE)
    loaders = sum(evidence.program.loader_workers) if evidence.program is not None else 0
    threads, cpus = evidence.threads, evidence.cpus
    if loaders and threads is not None and cpus is not None and loaders + threads > cpus:
        seen = fact("seen.threads", threads=threads, cpus=cpus, loaders=loaders)
        yield Hint("loader_workers", [seen], severity=Severity.INFO)


def allocator_faults(evidence: Evidence) -> Iterator[Hint]:
    """Memory that is given back to the kernel and taken again in every step: page faults."""
    faults = evidence.faults or 0.0
    share = evidence.ratio_of(faults * SECONDS_PER_FAULT)
    if share is None or share < LEAST_FAULT_SHARE:
        return
    environment = evidence.environment
    tunables = environment.get("GLIBC_TUNABLES", "")
    keeps_memory = environment.keys() >= KEEPING_VARIABLES.keys() or "trim_threshold" in tunables
    variables = {} if keeps_memory else KEEPING_VARIABLES
    yield Hint(
        "allocator_faults",
        [fact("seen.page_faults", faults=faults, fault_s=SECONDS_PER_FAULT, part_share=share)],
        severity=severity_by(share),
        variables=variables,
        profile=EnvProfile.PRODUCTION,
        values={"variables": tuple(f"{name}={value}" for name, value in variables.items())},
    )


def primitive_cache_misses(evidence: Evidence) -> Iterator[Hint]:
    """Primitives that oneDNN makes again, because shapes keep changing or its cache is too small."""
    missed = _rows(evidence, OpCountKind.PRIMITIVE, CACHE_MISS)
    if not missed:
        return
    capacity = evidence.environment.get(CAPACITY_VARIABLE)
    problems = tuple(sorted({row.detail for row in missed}))
    seen = [fact("seen.cache_misses", misses=sum(row.count for row in missed), problems=problems)]
    if capacity is not None:
        seen.append(fact("seen.variables", variables=(f"{CAPACITY_VARIABLE}={capacity}",)))
    yield Hint(
        "primitive_cache_misses",
        seen,
        severity=Severity.NOTABLE,
        places=[(row.phase, row.module) for row in missed],
        variables={CAPACITY_VARIABLE: LARGE_CAPACITY},
    )


def compiler_events(evidence: Evidence) -> Iterator[Hint]:
    """Code that torch.compile could not take in one piece, or had to take again."""
    for name, code in _COMPILER_EVENTS.items():
        rows = _rows(evidence, OpCountKind.COMPILE, name)
        reasons = tuple(row.detail for row in rows if row.detail)
        if rows:
            seen = fact("seen.compiler_events", times=sum(row.count for row in rows), reasons=reasons)
            yield Hint(code, [seen], severity=Severity.INFO)


def _rows(evidence: Evidence, kind: OpCountKind, name: str) -> list[OpCountRow]:
    rows = evidence.op_counts.rows if evidence.op_counts is not None else ()
    return [row for row in rows if row.kind is kind and row.name == name]
