"""A change between two op counts as a fact, with the rows that it explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from perfguard.profile.changes.residue import Counts, Place, Residue, RowKey
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.steps.ops import StepPhase

_NOTHING: Mapping[str, Value] = {}


class Rule(str, Enum):
    """Kinds of change, worst first."""

    IMPLEMENTATION = "implementation"
    REORDERS = "reorders"
    COPIES = "copies"
    FUSION = "fusion"
    CACHE_MISSES = "cache-misses"
    DTYPE = "dtype"
    LAYOUT = "layout"
    SHAPES = "shapes"
    CALLS = "calls"
    ALLOCATIONS = "allocations"
    COMPILE = "compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change."""

    rule: Rule
    """Its kind."""
    fact: Fact
    """What changed."""
    counts: Counts
    """How often on either side."""
    places: frozenset[Place]
    """Where it happened; at least one."""
    rows: frozenset[RowKey]
    """Differing rows that it explains, entirely or in part; also at other places, where effects of it show."""

    @property
    def phase(self) -> StepPhase:
        """The earliest phase: causes come before effects."""
        return phases_of(self.places)[0]

    @property
    def module(self) -> str:
        """Pattern of the module, or of the part of the model that all modules lie in; empty if that is all of it."""
        path = common_module(place.module for place in self.places)
        return path if len({place.module for place in self.places}) == 1 or "." in path else ""


def changed(
    rule: Rule,
    code: str,
    counts: Counts,
    places: Iterable[Place],
    rows: frozenset[RowKey],
    *,
    values: Mapping[str, Value] = _NOTHING,
    severity: Severity = Severity.NOTABLE,
    **more: Value,
) -> Change:
    """A change with its fact."""
    found = frozenset(places)
    modules = {place.module for place in found}
    told = change_fact(
        code,
        {"before": counts.before, "after": counts.after, **values, **more},
        module=common_module(modules),
        phases=phases_of(found),
        places=len(modules),
        severity=severity,
    )
    return Change(rule=rule, fact=told, counts=counts, places=found, rows=rows)


def explained(
    residue: Residue,
    rule: Rule,
    code: str,
    rows: Iterable[RowKey],
    *,
    counts: Counts | None = None,
    values: Mapping[str, Value] = _NOTHING,
    severity: Severity | None = None,
    **more: Value,
) -> Change:
    """A change that explains rows entirely, at their places; its counts and severity are theirs where not given."""
    rows = list(rows)
    counts = residue.counts(rows) if counts is None else counts
    severity = severity or severity_of(counts.change)
    places, taken = {row.place for row in rows}, residue.take(rows)
    return changed(rule, code, counts, places, taken, values={**values, **more}, severity=severity)


def change_fact(
    code: str,
    values: Mapping[str, Value],
    *,
    module: str,
    phases: Iterable[StepPhase],
    places: int,
    line: str | None = None,
    severity: Severity = Severity.NOTABLE,
) -> Fact:
    """A fact about what a step executes.

    Args:
        code: `optimizer.unfused`, `copies.added`, …
        values: `before` and `after` are counts of a step.
        module: Pattern of the module, or of what all modules have in common; empty for none.
        phases: Of the step, in order.
        places: Number of modules.
        line: `train.py:88`, where known.
        severity: How much it matters.
    """
    names = tuple(phase.value for phase in phases)
    return fact(code, values, severity=severity, op=module or None, place=line, phases=names, places=places)


def severity_of(change: int) -> Severity:
    """Of a count that is better smaller: less work is no harm."""
    return Severity.INFO if change < 0 else Severity.NOTABLE


def call_code(before: float, after: float) -> str:
    """Code of ops that are called more or less often."""
    if not before or not after:
        return "ops.removed" if before else "ops.added"
    return "calls.added" if after > before else "calls.removed"


def phases_of(places: Iterable[Place]) -> tuple[StepPhase, ...]:
    """Phases in the order of a step."""
    found = {place.phase for place in places}
    return tuple(phase for phase in StepPhase if phase in found)


def common_module(modules: Iterable[str]) -> str:
    """`ResNet.layer3` for all that is below it; empty where nothing is shared."""
    shared: list[str] = []
    for parts in zip(*(module.split(".") for module in modules), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def more_or_fewer(noun: str, change: int) -> dict[str, Value]:
    """`extra_copies=2` or `fewer_copies=1`; nothing where there are as many."""
    return {f"{'extra' if change > 0 else 'fewer'}_{noun}": abs(change)} if change else {}
