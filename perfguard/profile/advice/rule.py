"""What a rule is, and what all rules make findings with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perfguard.profile.advice.evidence import Evidence
from perfguard.profile.advice.places import where
from perfguard.profile.changes.counted import Rule as ChangeRule
from perfguard.profile.changes.residue import Place
from perfguard.profile.op_counts.census import pattern_of
from perfguard.records.steps.findings import Finding, Gain, Severity, Trial
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal, StepPhase
from perfguard.units import format_count

WORTH_TELLING = 0.01
"""Part of a step from which a finding is told. Gates see slowdowns from 0.5 % on; what takes less than 1 % of a step
would have to lose half of that to be seen."""
WORTH_A_CHANGE = 0.05
"""Part of a step from which a finding is more than a hint: a tenth of it is still what a gate sees."""

_NAMED_OPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of advice."""

    id: str
    """Id of its findings."""
    finds: str
    """What it looks for, for a list of all rules."""
    find: Callable[[Evidence], Sequence[Finding]]
    """Gives its findings; none where its evidence is missing."""
    changes: frozenset[ChangeRule] = frozenset()
    """Kinds of differences between two censuses that tell of the same thing."""


def severity_by(share: float | None) -> Severity:
    """Of a finding whose weight is the part of the step that it concerns."""
    return Severity.NOTABLE if share is not None and share >= WORTH_A_CHANGE else Severity.HINT


def finding_on(
    evidence: Evidence,
    totals: Iterable[OpTotal],
    *,
    rule_id: str,
    title: str,
    severity: Severity,
    seen: Sequence[str],
    gain: Gain,
    trial: Trial,
) -> Finding:
    """A finding about ops: where they are and what part of the step they take follow from them."""
    ops = sorted(totals, key=lambda total: (-total.self_s, total.key.phase, total.key.module, total.key.op))
    return Finding(
        id=rule_id,
        title=title,
        severity=severity,
        seen=tuple(seen),
        where=place_of_ops(ops),
        ops=tuple(total.key for total in ops[:_NAMED_OPS]),
        share=evidence.share_of(ops) if ops else None,
        gain=gain,
        trial=trial,
    )


def longest_first(times_s: Iterable[tuple[str, float]]) -> list[str]:
    """Texts by the seconds that all their entries take together; equally long ones by the alphabet."""
    sums_s: dict[str, float] = defaultdict(float)
    for text, time_s in times_s:
        sums_s[text] += time_s
    return sorted(sums_s, key=lambda text: (-sums_s[text], text))


def place_of_ops(totals: Sequence[OpTotal]) -> str:
    """`in forward and backward of ResNet.layer3, at 4 places (train.py:88)`; the line is the first op's that has one.

    Args:
        totals: Longest first; none gives nothing.
    """
    line = next((total.source for total in totals if total.source), None)
    place = _place((total.key.phase, total.key.module) for total in totals)
    return f"{place} ({line})" if line else place


def place_of_primitives(primitives: Iterable[PrimitiveTotal]) -> str:
    """The same of library calls; empty where none could be placed."""
    return _place((StepPhase(each.phase), each.module) for each in primitives if each.phase is not None)


def _place(places: Iterable[tuple[StepPhase, str]]) -> str:
    """One module by its path, modules of one pattern by that, others by the part of the model that they share."""
    found = set(places)
    modules = {module for _, module in found}
    patterns = {pattern_of(module) for module in modules}
    if not found:
        return ""
    if len(modules) == 1 or len(patterns) > 1:
        return where(Place(phase=phase, module=module) for phase, module in found)
    pattern = where(Place(phase=phase, module=pattern_of(module)) for phase, module in found)
    return f"{pattern}, at {format_count(len(modules), 'place')}"
