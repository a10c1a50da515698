"""What rules say: which ops or calls are concerned, what was seen of them, and from which part of a step it matters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from perfguard.profile.changes.op_names import short
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.plan import EnvProfile
from perfguard.records.steps.ops import OpTotal, PrimitiveTotal, StepPhase

WORTH_TELLING = 0.01
"""Part of a step from which a finding is reported. Gates see slowdowns from 0.5 % on; what takes less than 1 % of a
step would have to lose half of that to be seen."""
WORTH_A_CHANGE = 0.05  # Part of a step from which a finding is notable: a tenth of it is still what a gate sees


@dataclass(frozen=True, slots=True)
class Hint:
    """What a rule found, before its place and its part of the step are known."""

    code: str  # Of the finding, without its prefix
    seen: Sequence[Fact]  # The evidence
    _: KW_ONLY
    ops: Sequence[OpTotal] = ()
    """Ops that are concerned. Without ops and primitives the finding has no share of the step."""
    primitives: Sequence[PrimitiveTotal] = ()  # Library calls that are concerned
    places: Iterable[tuple[StepPhase, str]] = ()  # Phases and modules of counts whose time is not known
    severity: Severity | None = None  # None for that of the finding's share
    least_share: float = 0.0  # Part of the step from which it is reported
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that try it, empty ones unset; without any, an edit is compared."""
    profile: EnvProfile | None = None
    """How much of the environment perfguard decides in that trial; None leaves that to the configuration."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """What distinguishes it from other findings of its code."""


def severity_by(share: float | None) -> Severity:
    """Of a finding whose weight is the part of the step that it concerns."""
    return Severity.NOTABLE if share is not None and share >= WORTH_A_CHANGE else Severity.INFO


def longest_first(times_s: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Names by the seconds that all their entries take together; equally long ones by the alphabet."""
    sums_s: dict[str, float] = defaultdict(float)
    for name, time_s in times_s:
        sums_s[name] += time_s
    return tuple(sorted(sums_s, key=lambda name: (-sums_s[name], name)))


def calls_of(entries: Iterable[OpTotal | PrimitiveTotal]) -> float:
    """Calls in a step."""
    return sum(entry.calls for entry in entries)


def seen_calls(totals: Sequence[OpTotal], time_s: float | None = None) -> Fact:
    """Calls of ops and their names, longest first."""
    ops = longest_first((short(total.key.op), total.self_s) for total in totals)
    more = {} if time_s is None else {"time_s": time_s}
    return fact("seen.calls", more, calls=calls_of(totals), ops=ops)
