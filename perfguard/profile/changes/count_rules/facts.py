"""A fact: one difference with one cause, the rows that it explains, and the sentence that tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

from perfguard.profile.changes.count_rules.residue import Counts, Place, RowKey
from perfguard.records.steps.ops import StepPhase
from perfguard.units import format_count


class Rule(str, Enum):
    """Kinds of difference, gravest first."""

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


class Gravity(IntEnum):
    """What to read first, before the kind of difference."""

    GRAVE = 0
    """An optimised kernel was left: times may be off by orders of magnitude."""
    NOTABLE = 1
    """More work, or other work of which nothing tells whether it is more."""
    HARMLESS = 2
    """Less work, or the same elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One difference."""

    rule: Rule
    """Its kind."""
    before: int
    """Count in the baseline's step."""
    after: int
    """Count in the candidate's step."""
    sentence: str
    """For a person."""
    places: frozenset[Place]
    """Where it happened; at least one."""
    rows: frozenset[RowKey]
    """Differing rows that it explains, entirely or in part; also at other places, where effects of it show."""
    gravity: Gravity = Gravity.NOTABLE
    """What to read first."""

    @property
    def phase(self) -> StepPhase:
        """The earliest phase: causes come before effects."""
        return phases_of(self.places)[0]

    @property
    def module(self) -> str:
        """Pattern of the module, or of the part of the model that all modules lie in; empty if that is all of it."""
        common = _common_path(self.places)
        return ".".join(common) if len({place.module for place in self.places}) == 1 or len(common) > 1 else ""


def gravity_of(change: int) -> Gravity:
    """Of a count that is better smaller."""
    return Gravity.HARMLESS if change < 0 else Gravity.NOTABLE


def phases_of(places: Iterable[Place]) -> tuple[StepPhase, ...]:
    """Phases in the order of a step."""
    found = {place.phase for place in places}
    return tuple(phase for phase in StepPhase if phase in found)


def where(places: Iterable[Place]) -> str:
    """`in forward and backward of ResNet.layer3, at 4 places`; `in Adam` for an optimizer."""
    found = frozenset(places)
    phases = phases_of(found)
    path = ".".join(_common_path(found))
    if phases == (StepPhase.OPTIMIZER,) and path:
        text = f"in {path}"
    else:
        text = f"in {listed([phase.value for phase in phases], limit=len(phases))}" + (f" of {path}" if path else "")
    count = len({place.module for place in found})
    return f"{text}, at {format_count(count, 'place')}" if count > 1 else text


def listed(names: Iterable[str], *, limit: int = 3) -> str:
    """`conv2d, linear, relu and 4 more`; `forward and backward`."""
    words = list(names)
    shown, more = words[:limit], len(words) - limit
    if more > 0:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def more_or_fewer(change: int, noun: str, plural: str | None = None) -> str:
    """`2 reorders more`, `1 reorder fewer`."""
    count = abs(change)
    word = noun if count == 1 else plural or f"{noun}s"
    return f"{count:,} {word} {'more' if change > 0 else 'fewer'}"


def how_often(counts: Counts, verb: str = "called", *, kinds: int = 1) -> str:
    """`called twice as often (49 → 98)`, `called 53 instead of 49 times`, `new (4 calls)`, `no longer called (…)`.

    Args:
        counts: Of both sides.
        verb: What is done with the op.
        kinds: How many ops these are the counts of; of several, no ratio is told, as each has its own.
    """
    before, after = counts.before, counts.after
    if not before:
        return f"new ({format_count(after, 'call')})"
    if not after:
        return f"no longer {verb} ({format_count(before, 'call')})"
    if kinds > 1:
        return f"{verb} {after:,} instead of {before:,} times, all together"
    if after % before == 0 and after > before:
        times = "twice" if after == 2 * before else f"{after // before:,} times"
        return f"{verb} {times} as often ({before:,} → {after:,})"
    if before == 2 * after:
        return f"{verb} half as often ({before:,} → {after:,})"
    return f"{verb} {after:,} instead of {before:,} times"


def _common_path(places: Iterable[Place]) -> list[str]:
    """What the paths of all modules begin with; empty where one is outside modules."""
    paths = [place.module.split(".") if place.module else [] for place in places]
    common = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return common
