"""Facts by their codes, for tests of what was found out."""

from __future__ import annotations

from collections.abc import Iterable

from perfguard.records.facts import Fact


def codes_of(facts: Iterable[Fact]) -> list[str]:
    """The codes, in order."""
    return [found.code for found in facts]


def fact_of(facts: Iterable[Fact], code: str) -> Fact:
    """The only fact with this code."""
    (found,) = [found for found in facts if found.code == code]
    return found
