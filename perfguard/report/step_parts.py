"""Where the difference between two steps went, in parts that add up to it."""

from __future__ import annotations

import math
from typing import NamedTuple

from perfguard.records.steps.ops import PYTHON_OP, Attribution
from perfguard.report.messages.catalog import describe
from perfguard.units import shorten

_SHOWN_CULPRITS = 6
_LONGEST_NAME = 48


class Part(NamedTuple):
    """One part of the difference."""

    name: str
    value_s: float


def parts_of(attribution: Attribution, *, most: int = _SHOWN_CULPRITS) -> list[Part]:
    """Parts that add up to the step's difference: culprits first, then the rest by kind; parts of nothing are left out.

    Args:
        attribution: Its balance is the sum.
        most: Culprits that get a part of their own.
    """
    balance = attribution.balance
    shown = [culprit for culprit in attribution.culprits if not culprit.is_within_noise][:most]
    parts = [Part(shorten(describe(culprit.fact), _LONGEST_NAME), culprit.delta_s) for culprit in shown]
    in_python = sum(c.delta_s for c in shown if c.ops and all(key.op == PYTHON_OP for key in c.ops))
    in_ops = sum(c.delta_s for c in shown) - in_python
    parts += [
        Part("other ops" if in_ops else "ops", balance.ops_s - in_ops),
        Part("other Python" if in_python else "Python", balance.python_s - in_python),
        Part("idle", balance.idle_s),
        Part("unexplained", balance.unexplained_s),
    ]
    smallest = abs(balance.delta_s) * 1e-3
    return [part for part in parts if math.isfinite(part.value_s) and abs(part.value_s) > smallest]
