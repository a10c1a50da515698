"""Denormal values, which take a CPU many times as long as others: counted where the process could, else suspected."""

from __future__ import annotations

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.rule import Rule, finding_on
from perfguard.profile.advice.slow_data import suspects_of
from perfguard.profile.advice.subject import after_edit
from perfguard.records.steps.findings import Finding, Gain, Severity
from perfguard.records.steps.program import DenormalCount

ID = "denormals"
LEAST_RATIO = 0.001
"""Share of denormals in a kind of tensors from which they are told without a slow op: a vector of 16 f32 values is slow
as soon as one of them is denormal, so that 0.1 % of values are met in 1.6 % of vectors."""

_SHOWN_SUSPECTS = 3
_GAIN = Gain(
    text="5 to 50 times for the ops concerned: convolutions with such weights took 5, 40 and 50 times as long",
    source="pytorch#23862, pytorch#21734, pytorch#19651",
)


def _find(evidence: Evidence) -> list[Finding]:
    program = evidence.program
    flushes = program.flushes_denormals if program is not None else evidence.facts.flushes_denormals
    if flushes:
        return []
    counts = program.denormals if program is not None else ()
    many = [count for count in counts if count.denormals and count.denormals >= LEAST_RATIO * count.values]
    suspects = suspects_of(evidence)
    if not many and not suspects:
        return []
    seen = [*map(_counted, many or counts), *(suspect.reason for suspect in suspects[:_SHOWN_SUSPECTS])]
    if not many:
        seen.append("nothing proves that it is the values: activations are not looked at")
    return [
        finding_on(
            evidence,
            [suspect.total for suspect in suspects],
            rule_id=ID,
            title=_title(counted=bool(many), slow=bool(suspects)),
            severity=Severity.NOTABLE if many else Severity.HINT,
            seen=seen,
            gain=_GAIN,
            trial=after_edit(
                evidence.subject,
                "torch.set_flush_denormal(True) as the first thing that uses torch, since threads take the setting "
                "over when they start",
            ),
        )
    ]


def _title(*, counted: bool, slow: bool) -> str:
    if counted:
        return "denormal values slow the step" if slow else "there are denormal values"
    return "denormal values are suspected"


def _counted(count: DenormalCount) -> str:
    worst = f", most in {count.worst}" if count.worst else ""
    return f"{count.denormals:,} of {count.values:,} values of the {count.group} are denormal{worst}"


RULE = Rule(id=ID, finds="denormal values, counted by the process or suspected of slow ops", find=_find)
