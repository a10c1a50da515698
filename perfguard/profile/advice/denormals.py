"""Denormal values, which take a CPU many times as long as others: counted where the process could, else suspected."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.making import on_ops
from perfguard.profile.advice.slow_ops import suspects_of
from perfguard.records.facts import Severity, fact
from perfguard.records.steps.findings import Finding

LEAST_RATIO = 0.001
"""Share of denormals in a kind of tensors from which they are told without a slow op: a vector of 16 f32 values is slow
as soon as one of them is denormal, so that 0.1 % of values are met in 1.6 % of vectors."""

_SHOWN_SUSPECTS = 3


def denormals(evidence: Evidence) -> list[Finding]:
    """At most one: what was counted, and ops that are slow for what they are."""
    program = evidence.program
    flushes = program.flushes_denormals if program is not None else evidence.facts.flushes_denormals
    counts = program.denormals if program is not None else ()
    many = [count for count in counts if count.denormals and count.denormals >= LEAST_RATIO * count.values]
    suspects = [] if flushes else suspects_of(evidence)
    if flushes or not (many or suspects):
        return []
    seen = [
        fact(
            "seen.denormals",
            denormals=count.denormals,
            counted=count.values,
            group=count.group,
            worst=count.worst or None,
        )
        for count in many or counts
    ]
    return on_ops(
        evidence,
        [suspect.total for suspect in suspects],
        "denormals" if many else "suspected_denormals",
        *seen,
        *(suspect.seen for suspect in suspects[:_SHOWN_SUSPECTS]),
        *(() if many else (fact("seen.no_proof"),)),
        severity=Severity.NOTABLE if many else Severity.INFO,
        is_slow=bool(suspects),
    )
