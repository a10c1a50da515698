"""What `/` filters by: a regular expression, or with `!` everything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter as typed, ready to be used."""

    text: str
    """As typed."""
    accepts: Callable[[str], bool]
    """Whether a row's text is shown."""
    problem: str = ""
    """Why it is taken as plain text; empty where it is a regular expression."""


def parse_filter(text: str) -> Filter:
    """`conv.*bf16` or `!unchanged`; capitals do not matter. What is no regular expression is looked for as it is."""
    is_inverse = text.startswith("!")
    wanted = text[1:] if is_inverse else text
    problem = ""
    try:
        pattern = re.compile(wanted, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        problem = f"{wanted!r} is no regular expression ({error}); it is looked for as it is"
        pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    if not wanted:
        return Filter(text=text, accepts=lambda _: True)
    return Filter(text=text, accepts=lambda row: bool(pattern.search(row)) is not is_inverse, problem=problem)
