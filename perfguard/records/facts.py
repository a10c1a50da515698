"""Facts: everything that perfguard says of a run, as a code with numbers instead of a sentence.

A fact is made where something is found out and turned into English by `perfguard.report.messages` alone. Nothing else
may compare, sort or filter what people read; codes and values are there for that. `docs/codes.md` lists the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Value = str | int | float | bool | None | tuple[str | int | float | None, ...]
"""A number, a name or a list of them; the suffix of its name is its unit: `_ratio`, `_log_ratio`, `_share`, `_s`."""

RECORDED_TEXT = "recorded.text"  # Code of a sentence from a recording that is older than codes


_NOTHING: Mapping[str, Value] = {}


class Severity(str, Enum):
    """How much a fact matters, the worst first."""

    GRAVE = "grave"  # Results cannot be trusted, or times may be off by an order of magnitude
    NOTABLE = "notable"  # Worth acting on: a known loss, or something that widens the noise
    INFO = "info"  # Context, or advice whose gain is unknown or small

    def is_at_least(self, other: Severity) -> bool:
        """Whether it matters as much as another, or more."""
        ranks = list(Severity)
        return ranks.index(self) <= ranks.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a fact is about; None for all that it does not concern."""

    case_id: str | None = None
    arm: str | None = None  # `baseline` or `candidate`
    op: str | None = None  # The op, or the module that calls it
    place: str | None = None  # `train.py:88`


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that was found out."""

    code: str  # Stable name: `host.waited_for_cpu`
    severity: Severity = Severity.INFO
    subject: Subject = Subject()
    values: Mapping[str, Value] = field(default_factory=dict)  # Numbers and names by their name, units as suffixes


def fact(
    code: str,
    values: Mapping[str, Value] = _NOTHING,
    /,
    *,
    severity: Severity = Severity.INFO,
    case_id: str | None = None,
    arm: str | None = None,
    op: str | None = None,
    place: str | None = None,
    **more: Value,
) -> Fact:
    """A fact in one call: `fact("host.waited_for_cpu", waited_share=0.2, cpus="0,1")`."""
    subject = Subject(case_id=case_id, arm=arm, op=op, place=place)
    return Fact(code=code, severity=severity, subject=subject, values={**values, **more})


def recorded_text(text: str) -> Fact:
    """A sentence of an older recording."""
    return fact(RECORDED_TEXT, text=text)
