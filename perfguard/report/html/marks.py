"""A sign, a word and a class for what is said of a case or a run; no colour stands alone."""

from __future__ import annotations

from typing import NamedTuple

from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.report.terminal.result import SIGNS, word_of


class Mark(NamedTuple):
    """How a word is shown."""

    sign: str
    word: str
    class_: str


_CLASSES = {
    Outcome.REGRESSED: "slower",
    Outcome.IMPROVED: "faster",
    Outcome.UNCHANGED: "same",
    Outcome.SAME_CODE: "same",
    Outcome.INCONCLUSIVE: "open",
    Outcome.INCOMPARABLE: "open",
    Outcome.NO_BASELINE: "open",
    Outcome.FAILED: "broken",
    Outcome.DIFFERENT: "broken",
    Outcome.ALLOWED: "slower",
}
_GATE_SIGNS = {GateOutcome.PASS.value: ("✓", "same"), GateOutcome.HOST_UNSTABLE.value: ("?", "open")}
_OTHERS = {"measured": ("·", "same"), "profiled": ("·", "same"), "interrupted": ("■", "open")}
_ORDER = (
    Outcome.REGRESSED,
    Outcome.FAILED,
    Outcome.DIFFERENT,
    Outcome.ALLOWED,
    Outcome.INCONCLUSIVE,
    Outcome.INCOMPARABLE,
    Outcome.NO_BASELINE,
    Outcome.IMPROVED,
    Outcome.UNCHANGED,
    Outcome.SAME_CODE,
)
"""What needs a look first."""


def mark_of(outcome: Outcome) -> Mark:
    """What is said of a case."""
    return Mark(SIGNS[outcome][0], word_of(outcome), _CLASSES[outcome])


def mark_of_verdict(verdict: str) -> Mark:
    """What is said of a run: a GateOutcome, `measured`, `profiled` or `interrupted`; others stay as they are."""
    known = _GATE_SIGNS.get(verdict) or _OTHERS.get(verdict)
    if known is not None:
        return Mark(known[0], verdict, known[1])
    try:
        return mark_of(Outcome(verdict))
    except ValueError:
        return Mark("?", verdict, "open")


def urgency(outcome: Outcome) -> int:
    """What needs a look comes first."""
    return _ORDER.index(outcome)


def is_worth_a_look(outcome: Outcome) -> bool:
    """Whether its evidence is shown at once."""
    return outcome in _ORDER[:4]
