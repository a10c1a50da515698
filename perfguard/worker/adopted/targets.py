"""Import strings of adopted cases: `TOOL:PLACE:NAME`, where a case of perfguard's own has `PLACE:NAME`."""

from __future__ import annotations

from dataclasses import dataclass

ASV = "asv"
PYTEST = "pytest"
TIMER = "timer"
TOOLS = (ASV, PYTEST, TIMER)
"""The tools whose suites are adopted; also the first word of the ids of their cases, and their tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTarget:
    """Where an adopted case comes from."""

    tool: str
    """One of `TOOLS`."""
    place: str
    """File, or asv's benchmark directory, relative to the arm's tree."""
    name: str
    """What the tool knows it by, inside that place."""

    def __str__(self) -> str:
        return f"{self.tool}:{self.place}:{self.name}"


def adopted_target(target: str) -> AdoptedTarget | None:
    """What an import string says; None where it is one of perfguard's own."""
    tool, _, rest = target.partition(":")
    place, colon, name = rest.rpartition(":")
    if tool not in TOOLS or not colon:
        return None
    return AdoptedTarget(tool=tool, place=place, name=name)
