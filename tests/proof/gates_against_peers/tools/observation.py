"""What a gate was asked and what it answered, in the same words for every tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from tests.proof.gates_against_peers.making import Made
from tests.proof.gates_against_peers.variants import Variant


class Answer(str, Enum):
    """What a gate said."""

    PASS = "pass"
    RED = "red"
    """It says that something got slower."""
    INCONCLUSIVE = "inconclusive"
    """It says that it cannot tell."""
    ERROR = "error"
    """It did not come to an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One gate: the victim as it stands against a variant."""

    variant: Variant
    """The candidate."""
    made: Made
    """Where both lie."""
    minutes: float
    """What the tool may take."""
    cpus: tuple[int, ...]
    """Measured CPUs."""
    allocator: str
    """`pinned` or `default`: what the peers run with."""
    folder: Path
    """Empty directory for what the tool writes."""
    seed: int
    """For tools that can be given one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One gate's answer."""

    answer: Answer
    """The verdict."""
    flagged: tuple[str, ...]
    """Cases that it calls slower."""
    seconds: float
    """Wall time from the command to the verdict."""
    effects: dict[str, float] = field(default_factory=dict)
    """Its estimates by case, as ratios, where it gives any."""
    detail: dict[str, Any] = field(default_factory=dict)
    """What is worth keeping beside that; `reason` where there is an error."""


class Tool(Protocol):
    """A tool under test."""

    name: str
    rule: str
    """Its rule in a few words, for the table."""

    def can(self, variant: Variant) -> bool:
        """Whether the tool's own commands can be given this variant."""
        ...

    def ask(self, question: Question) -> Observation:
        """Run one gate with the tool's own commands."""
        ...
