"""Memory that is given back to the kernel and taken again in every step: page faults."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule, severity_by
from perfguard.profile.advice.subject import after_edit, with_variables
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.findings import Finding, Gain
from perfguard.units import format_number, format_seconds, format_share

ID = "allocator-faults"
SECONDS_PER_FAULT = 1.5e-6
"""What a fault took where it was measured: LayerNorm on 512 x 1024, forward and backward, one thread of a guest of an
AMD EPYC: 240 to 247 us without faults, up to 527 us with up to 184 of them. Only used to tell many faults from few."""
LEAST_SHARE = 0.02
"""Part of a step that its faults would take at that price, from which they are told: the price is another elsewhere, so
half of it must still be worth telling."""
KEEPING_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
"""With these, glibc takes memory once and keeps it."""

_GAIN = Gain(
    text="LayerNorm: 257 to 527 µs with glibc's defaults, 240 to 247 µs with memory that is kept; elementwise ops on "
    "large tensors gained 30 to 50 %",
    source="perfguard's own measurement on a guest of an AMD EPYC; pytorch#5412",
)


def _find(evidence: Evidence) -> list[Finding]:
    share = evidence.ratio_of((evidence.faults or 0.0) * SECONDS_PER_FAULT)
    if share is None or share < LEAST_SHARE:
        return []
    if _keeps_memory(evidence):
        trial = after_edit(
            evidence.subject,
            "glibc is told to keep memory, so another allocator or the program's own allocations cause them: reuse "
            "large buffers from step to step, or try jemalloc by LD_PRELOAD",
        )
    else:
        text = " ".join(f"{name}={value}" for name, value in KEEPING_VARIABLES.items())
        trial = with_variables(evidence.subject, KEEPING_VARIABLES, text, profile=EnvProfile.PRODUCTION)
    return [
        Finding(
            id=ID,
            title="memory is taken from the kernel anew in each step",
            severity=severity_by(share),
            seen=(
                f"{format_number(evidence.faults or 0.0)} minor page faults a step",
                f"at {format_seconds(SECONDS_PER_FAULT)} each, as on one machine, {format_share(share)} of the step",
            ),
            where="",
            ops=(),
            share=None,
            gain=_GAIN,
            trial=trial,
        )
    ]


def _keeps_memory(evidence: Evidence) -> bool:
    environment = evidence.environment
    tunables = environment.get("GLIBC_TUNABLES", "")
    return all(name in environment for name in KEEPING_VARIABLES) or "trim_threshold" in tunables


RULE = Rule(
    id=ID,
    finds="page faults in steady steps",
    find=_find,
    changes=frozenset({ChangeRule.ALLOCATIONS}),
)
