"""Numbers and outcomes as tables show them, in terminals and pages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Number(NamedTuple):
    """A number as it is shown, and what it is sorted by."""

    text: str
    value: float | None = None

    @classmethod
    def of(cls, form: Callable[[float | None], str], value: float | None) -> Number:
        """A number by a function of `perfguard.units`."""
        return cls(form(value), value)

    @classmethod
    def whole(cls, value: int | None) -> Number:
        """A whole number; `-` for None."""
        return cls("-", None) if value is None else cls(str(value), float(value))

    @classmethod
    def p(cls, value: float | None) -> Number:
        """An adjusted p; `-` where it is unknown."""
        return cls("-" if value is None or math.isnan(value) else f"{value:.2g}", value)


class Mark(NamedTuple):
    """How an outcome is shown; the word stands beside sign and colour everywhere."""

    sign: str
    word: str
    class_: str
    style: str = ""
