"""What all rules make findings with: where they are and what part of the step they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.trials import after_edit
from perfguard.profile.changes.op_names import short
from perfguard.profile.op_counts.steady import pattern_of
from perfguard.records.facts import Fact, Severity, Subject, Value
from perfguard.records.steps.findings import PREFIX, Finding
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal, StepPhase

WORTH_TELLING = 0.01
"""Part of a step from which a finding is told. Gates see slowdowns from 0.5 % on; what takes less than 1 % of a step
would have to lose half of that to be seen."""
WORTH_A_CHANGE = 0.05
"""Part of a step from which a finding is notable: a tenth of it is still what a gate sees."""

_NAMED_OPS = 5


def severity_by(share: float | None) -> Severity:
    """Of a finding whose weight is the part of the step that it concerns."""
    return Severity.NOTABLE if share is not None and share >= WORTH_A_CHANGE else Severity.INFO


def on_ops(
    evidence: Evidence,
    totals: Iterable[OpTotal],
    code: str,
    *seen: Fact,
    severity: Severity | None = None,
    least_share: float = 0.0,
    command: str | None = None,
    **values: Value,
) -> list[Finding]:
    """A finding about ops; none where they take less than `least_share` of the step, or there is no step.

    Args:
        evidence: The step.
        totals: The ops. Without any the finding has no place and no share.
        code: Of the finding, without its prefix.
        seen: The evidence.
        severity: None for that of its share.
        least_share: Part of the step from which it is told.
        command: Tries it; None for one that compares an edit.
        values: What tells it from other findings of its code.
    """
    ops = sorted(totals, key=lambda total: (-total.self_s, total.key.phase, total.key.module, total.key.op))
    share = evidence.share_of(ops)
    if least_share and (share is None or share < least_share):
        return []
    finding = _finding(
        evidence,
        code,
        seen,
        severity=severity or severity_by(share),
        command=command,
        values=values,
        places=[(total.key.phase, total.key.module) for total in ops],
        line=next((total.source for total in ops if total.source), None),
        ops=ops,
        share=share if ops else None,
    )
    return [finding]


def on_primitives(
    evidence: Evidence,
    primitives: Sequence[PrimitiveTotal],
    code: str,
    *seen: Fact,
    severity: Severity | None = None,
    least_share: float,
    **values: Value,
) -> list[Finding]:
    """The same about library calls."""
    share = evidence.ratio_of(sum(primitive.time_s for primitive in primitives))
    if share is None or share < least_share:
        return []
    places = [(StepPhase(each.phase), each.module) for each in primitives if each.phase is not None]
    severity = severity or severity_by(share)
    return [_finding(evidence, code, seen, severity=severity, values=values, places=places, share=share)]


def on_process(
    evidence: Evidence,
    code: str,
    *seen: Fact,
    severity: Severity,
    places: Iterable[tuple[StepPhase, str]] = (),
    command: str | None = None,
    **values: Value,
) -> list[Finding]:
    """A finding about the whole process, or about counts at some places whose time is not known."""
    return [_finding(evidence, code, seen, severity=severity, command=command, values=values, places=places)]


def longest_first(times_s: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Names by the seconds that all their entries take together; equally long ones by the alphabet."""
    sums_s: dict[str, float] = defaultdict(float)
    for name, time_s in times_s:
        sums_s[name] += time_s
    return tuple(sorted(sums_s, key=lambda name: (-sums_s[name], name)))


def names_of(totals: Iterable[OpTotal]) -> tuple[str, ...]:
    """Short names of ops, longest first."""
    return longest_first((short(total.key.op), total.self_s) for total in totals)


def calls_of(entries: Iterable[OpTotal | PrimitiveTotal]) -> float:
    """Calls in a step."""
    return sum(entry.calls for entry in entries)


def _finding(
    evidence: Evidence,
    code: str,
    seen: Sequence[Fact],
    *,
    severity: Severity,
    values: Mapping[str, Value],
    places: Iterable[tuple[StepPhase, str]],
    command: str | None = None,
    line: str | None = None,
    ops: Sequence[OpTotal] = (),
    share: float | None = None,
) -> Finding:
    found = set(places)
    modules = {module for _, module in found}
    phases = {phase for phase, _ in found}
    return Finding(
        code=PREFIX + code,
        severity=severity,
        subject=Subject(case_id=evidence.target.case_id or None, op=_path(modules) or None, place=line),
        values=values,
        seen=tuple(seen),
        phases=tuple(phase for phase in StepPhase if phase in phases),
        places=len(modules),
        ops=tuple(total.key for total in ops[:_NAMED_OPS]),
        share=share,
        command=after_edit(evidence.target) if command is None else command,
    )


def _path(modules: set[str]) -> str:
    """One module by its path, modules of one pattern by that, others by the part of the model that they share."""
    patterns = {pattern_of(module) for module in modules}
    if len(modules) > 1 and len(patterns) == 1:
        return patterns.pop()
    parts = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(same[0] for same in takewhile(lambda names: len(set(names)) == 1, parts))
