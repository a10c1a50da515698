"""Slowdowns that a project accepts for a while, each with its limit, its reason and its end."""

from __future__ import annotations

from datetime import date

from msgspec import Struct

ALLOW_SCHEMA = 1

LONGEST_DAYS = 366  # How far ahead an entry may end: what is accepted for longer belongs into a new baseline

LARGEST_RATIO = 1.0  # Largest slowdown that may be allowed; who accepts more had better take the case out of the suite


class Allowance(Struct, frozen=True, kw_only=True):
    """One entry of the allow-list."""

    case: str  # A case id, a benchmark's name, `tag:` with a tag, or a glob, as `--case` takes them
    max_ratio: float  # Largest accepted slowdown, above 0 and at most 1: 0.03 for 3 %
    until: date  # Last day on which it applies, UTC
    reason: str  # Why it is accepted; one line, not blank

    def has_expired(self, today: date) -> bool:
        """Whether it no longer applies."""
        return today > self.until


class AllowList(Struct, frozen=True, kw_only=True):
    """What `allow.toml` holds."""

    schema: int
    allow: tuple[Allowance, ...] = ()
