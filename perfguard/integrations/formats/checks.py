"""What every reader asks of a file: names that can be shown, numbers that can be reckoned with, nothing twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from perfguard.errors import StoreError
from perfguard.integrations.formats.series import SECONDS, ImportedSuite
from perfguard.records.facts import Fact, fact
from perfguard.report.messages.catalog import describe
from perfguard.units import printable

T = TypeVar("T")

MAX_SERIES = 100_000
"""More series than this are refused."""
MAX_NAME = 1024
"""Longest name of a benchmark, as in Bencher's own limit."""
SHORTEST_S, LONGEST_S = 1e-15, 1e9
"""Times outside of this are no times of an iteration; inside, no sum or square of them overflows."""
_LARGEST = 1e30
"""The same for what is no time."""
_MOST = 1e15
"""More values, iterations or threads than this are no count."""
_SHOWN = 60

SECONDS_IN = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Units of time that files name."""


def checked_name(text: str, *, source: str, what: str = "a benchmark") -> str:
    """A name that can be printed and written to any format.

    Raises:
        StoreError: It is empty, too long, or holds control characters.
    """
    if not text.strip():
        raise StoreError(f"{source}: {what} has an empty name")
    if len(text) > MAX_NAME:
        raise StoreError(f"{source}: the name {text[:_SHOWN]!r}… has more than {MAX_NAME} characters")
    if not text.isprintable():
        raise StoreError(f"{source}: the name {text[:_SHOWN]!a} holds characters that cannot be printed")
    return text


def checked_values(values: Iterable[float], *, name: str, source: str, unit: str = SECONDS) -> tuple[float, ...]:
    """Values that statistics may be made of.

    Args:
        values: Times in seconds, or what is measured in `unit`.
        name: The series.
        source: The file.
        unit: `s` for times, which must be positive.

    Raises:
        StoreError: One is nan, infinite, or no time.
    """
    found = tuple(values)
    for value in found:
        if not is_usable(value, unit=unit):
            wanted = f"between {SHORTEST_S:g} and {LONGEST_S:g} s" if unit == SECONDS else "finite"
            raise StoreError(f"{source}: {printable(name)} has a value of {value!r}; a value must be {wanted}")
    return found


def is_usable(value: float, *, unit: str = SECONDS) -> bool:
    """Whether a number can be a value of a series."""
    if unit == SECONDS:
        return SHORTEST_S <= value <= LONGEST_S
    return math.isfinite(value) and abs(value) <= _LARGEST


def number_or_none(value: Any) -> float | None:
    """A number of a summary that a file gives; None for what is missing, not a number, or absurd."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) <= _LARGEST else None


def count_or_none(value: Any) -> int | None:
    """A count that a file gives; None for what is missing, negative, or absurd."""
    number = number_or_none(value)
    return int(number) if number is not None and 0 <= number <= _MOST else None


def text_or_none(value: Any) -> str | None:
    """A fact that a file gives as text, safe to show; None for what is missing or something else."""
    if not isinstance(value, str):
        return None
    return " ".join(printable(value).split())[:MAX_NAME] or None


def parameters_of(values: Any) -> tuple[tuple[str, str], ...]:
    """Names and values of parameters as text; what is no flat mapping has none."""
    if not isinstance(values, dict):
        return ()
    return tuple(
        (printable(str(key))[:MAX_NAME], printable(str(value))[:MAX_NAME])
        for key, value in values.items()
        if isinstance(value, (str, int, float, bool))
    )


def checked_suite(suite: ImportedSuite) -> ImportedSuite:
    """A suite in which each series is named once.

    Raises:
        StoreError: It is empty, too large, or names a series twice.
    """
    if not suite.series:
        left_out = f" ({describe(suite.what_is_missing[0])})" if suite.what_is_missing else ""
        raise StoreError(f"{suite.source} holds no benchmark that can be read{left_out}")
    if len(suite.series) > MAX_SERIES:
        raise StoreError(f"{suite.source} holds {len(suite.series)} series; at most {MAX_SERIES} are read")
    seen: set[tuple[str, str]] = set()
    for series in suite.series:
        if (series.name, series.metric) in seen:
            raise StoreError(
                f"{suite.source} holds {series.metric} of {series.name} twice, so which of them is meant is unknown"
            )
        seen.add((series.name, series.metric))
    return suite


def left_out_failed(names: Sequence[str]) -> tuple[Fact, ...]:
    """Benchmarks that failed or were skipped; nothing where there are none."""
    return (fact("import.left_out_failed", benchmarks=len(names), names=_shown(names)),) if names else ()


def left_out_empty(names: Sequence[str]) -> tuple[Fact, ...]:
    """Benchmarks without a value; nothing where there are none."""
    return (fact("import.left_out_empty", benchmarks=len(names), names=_shown(names)),) if names else ()


def _shown(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(printable(name)[:_SHOWN] for name in names)
