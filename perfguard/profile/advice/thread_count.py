"""Threads that fight for CPUs, and CPUs that no thread uses."""

from __future__ import annotations

import math

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule
from perfguard.profile.advice.subject import with_variables
from perfguard.records.machine.fingerprint import QuotaState
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.findings import UNKNOWN_GAIN, Finding, Gain, Severity
from perfguard.units import format_count, format_number

ID = "threads"

_TOO_MANY_GAIN = Gain(
    text="LayerNorm took 41 ms with two threads on one CPU, and 0.24 ms with one; with a quota that the threads did "
    "not know of, a program was 45 times slower",
    source="perfguard's own measurement on a guest with two CPUs; ollama#17916",
)


def _find(evidence: Evidence) -> list[Finding]:
    if evidence.threads is None or evidence.threads < 1:
        return []
    quota = _quota_cpus(evidence)
    if evidence.cpus is not None and evidence.threads > evidence.cpus:
        return [_too_many(evidence, evidence.cpus, f"they may run on {format_count(evidence.cpus, 'CPU')}")]
    if quota is not None and evidence.threads > math.ceil(quota):
        return [_too_many(evidence, math.floor(quota), f"the control group's quota is {format_number(quota)} CPUs")]
    if evidence.cpus is not None and evidence.threads < min(evidence.cpus, quota or math.inf):
        return [_too_few(evidence, evidence.cpus)]
    return []


def _quota_cpus(evidence: Evidence) -> float | None:
    limits = evidence.fingerprint.limits if evidence.fingerprint is not None else None
    return limits.quota_cpus if limits is not None and limits.quota is QuotaState.LIMITED else None


def _too_many(evidence: Evidence, cpus: int, limit: str) -> Finding:
    return _finding(
        evidence,
        max(1, cpus),
        title="more threads than CPUs",
        severity=Severity.GRAVE,
        limit=limit,
        gain=_TOO_MANY_GAIN,
    )


def _too_few(evidence: Evidence, cpus: int) -> Finding:
    return _finding(
        evidence,
        cpus,
        title="fewer threads than CPUs",
        severity=Severity.HINT,
        limit=f"they may run on {format_count(cpus, 'CPU')}",
        gain=UNKNOWN_GAIN,
    )


def _finding(evidence: Evidence, wanted: int, *, title: str, severity: Severity, limit: str, gain: Gain) -> Finding:
    variables = {"OMP_NUM_THREADS": str(wanted), "MKL_NUM_THREADS": str(wanted)}
    return Finding(
        id=ID,
        title=title,
        severity=severity,
        seen=(f"torch computes with {format_count(evidence.threads or 0, 'thread')}; {limit}",),
        where="",
        ops=(),
        share=None,
        gain=gain,
        trial=with_variables(
            evidence.subject,
            variables,
            f"one thread for each CPU: OMP_NUM_THREADS={wanted}, and no torch.set_num_threads() in the program",
            profile=EnvProfile.PRODUCTION,
        ),
    )


RULE = Rule(id=ID, finds="more or fewer threads than CPUs", find=_find)
