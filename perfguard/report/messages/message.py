"""What one entry of the catalogue holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfguard.records.facts import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """How a code reads."""

    text: str | Callable[[Fact], str]
    """A template (see `perfguard.report.messages.template`), or a function where a template will not do."""
    about: str
    """What the code means and when it is raised, for `docs/codes.md`."""
