"""CPUs and who uses them: threads that fight for them, idle ones, data loaders, waiting for data."""

from __future__ import annotations

import math

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import on_ops, on_process
from perfguard.profile.advice.trials import with_variables
from perfguard.records.facts import Severity, fact
from perfguard.records.machine.fingerprint import QuotaState
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.findings import Finding
from perfguard.records.steps.ops import PYTHON_OP, StepPhase

LEAST_LOADING_SHARE = 0.1
"""Part of a step in loading from which it is told: a batch has to be put together in any case, and less than a tenth of
a step for that is nothing that a cheaper way could win much of. A judgement, not a measurement."""

_MOSTLY = 0.8
"""Part of that time in no op from which it may be anything, not only loading."""


def thread_count(evidence: Evidence) -> list[Finding]:
    """More or fewer threads than CPUs."""
    threads, cpus, quota = evidence.threads, evidence.cpus, _quota_cpus(evidence)
    if threads is None or threads < 1:
        return []
    if cpus is not None and threads > cpus:
        return _threads(evidence, "threads", Severity.GRAVE, wanted=cpus)
    if quota is not None and threads > math.ceil(quota):
        return _threads(evidence, "threads", Severity.GRAVE, wanted=math.floor(quota), quota_cpus=quota)
    if cpus is not None and threads < min(cpus, quota or math.inf):
        return _threads(evidence, "idle_cpus", Severity.INFO, wanted=cpus)
    return []


def _quota_cpus(evidence: Evidence) -> float | None:
    limits = evidence.fingerprint.limits if evidence.fingerprint is not None else None
    return limits.quota_cpus if limits is not None and limits.quota is QuotaState.LIMITED else None


def _threads(
    evidence: Evidence, code: str, severity: Severity, *, wanted: int, quota_cpus: float | None = None
) -> list[Finding]:
    wanted = max(1, wanted)
    variables = {"OMP_NUM_THREADS": str(wanted), "MKL_NUM_THREADS": str(wanted)}
    return on_process(
        evidence,
        code,
        fact("seen.threads", threads=evidence.threads, cpus=evidence.cpus, quota_cpus=quota_cpus),
        severity=severity,
        command=with_variables(evidence.target, variables, profile=EnvProfile.PRODUCTION),
        wanted=wanted,
    )


def input_pipeline(evidence: Evidence) -> list[Finding]:
    """Steps that wait for their data, and loader processes that take the CPUs of the training threads."""
    return [*_loading(evidence), *_loaders(evidence)]


def _loading(evidence: Evidence) -> list[Finding]:
    loading = [total for total in evidence.totals if total.key.phase is StepPhase.LOAD]
    loading_s = evidence.seconds_of(loading)
    python_s = evidence.seconds_of(total for total in loading if total.key.op == PYTHON_OP)
    code = "python_before_model" if python_s >= _MOSTLY * loading_s else "input_pipeline"
    seen = fact("seen.before_model", time_s=loading_s, python_s=python_s or None)
    return on_ops(evidence, loading, code, seen, least_share=LEAST_LOADING_SHARE)


def _loaders(evidence: Evidence) -> list[Finding]:
    workers = sum(evidence.program.loader_workers) if evidence.program is not None else 0
    if not workers or evidence.threads is None or evidence.cpus is None or workers + evidence.threads <= evidence.cpus:
        return []
    seen = fact("seen.threads", threads=evidence.threads, cpus=evidence.cpus, loaders=workers)
    return on_process(evidence, "loader_workers", seen, severity=Severity.INFO)
