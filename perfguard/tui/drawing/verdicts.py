"""A sign, a word and a role for what is said of a case, the same on every screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.watch.view.run_view import CaseState, CaseView, RunState


class Mark(NamedTuple):
    """How a word is shown."""

    sign: str
    word: str
    role: Role


_OUTCOMES = {
    Outcome.REGRESSED.value: Mark("▲", "regressed", Role.SLOWER),
    Outcome.IMPROVED.value: Mark("▼", "faster", Role.FASTER),
    Outcome.UNCHANGED.value: Mark("=", "unchanged", Role.SAME),
    Outcome.SAME_CODE.value: Mark("≡", "same code", Role.SAME),
    Outcome.INCONCLUSIVE.value: Mark("?", "inconclusive", Role.OPEN),
    Outcome.INCOMPARABLE.value: Mark("≠", "incomparable", Role.OPEN),
    Outcome.NO_BASELINE.value: Mark("∅", "no baseline", Role.OPEN),
    Outcome.FAILED.value: Mark("✗", "failed", Role.BROKEN),
    Outcome.DIFFERENT.value: Mark("!", "different", Role.BROKEN),
    Outcome.ALLOWED.value: Mark("△", "allowed", Role.SLOWER),
}
_STATES = {
    CaseState.WAITING: Mark("·", "waiting", Role.MUTED),
    CaseState.MEASURING: Mark("●", "measuring", Role.ACCENT),
    CaseState.OPEN: Mark("○", "open", Role.MUTED),
    CaseState.MEASURED: Mark("·", "measured", Role.MUTED),
    CaseState.ANSWERED: Mark("=", "answered", Role.SAME),
    CaseState.FAILED: Mark("✗", "failed", Role.BROKEN),
}
_GATES = {
    GateOutcome.PASS.value: Mark("=", "pass", Role.SAME),
    GateOutcome.REGRESSED.value: Mark("▲", "regressed", Role.SLOWER),
    GateOutcome.INCONCLUSIVE.value: Mark("?", "inconclusive", Role.OPEN),
    GateOutcome.HOST_UNSTABLE.value: Mark("?", "host unstable", Role.OPEN),
    GateOutcome.INCOMPARABLE.value: Mark("≠", "incomparable", Role.OPEN),
    GateOutcome.NO_BASELINE.value: Mark("∅", "no baseline", Role.OPEN),
    GateOutcome.FAILED.value: Mark("✗", "failed", Role.BROKEN),
    GateOutcome.DIFFERENT.value: Mark("!", "different", Role.BROKEN),
}
_RUN_STATES = {
    RunState.WAITING: Mark("·", "waiting", Role.MUTED),
    RunState.PREPARING: Mark("○", "preparing", Role.ACCENT),
    RunState.MEASURING: Mark("●", "measuring", Role.ACCENT),
    RunState.FINISHED: Mark("=", "finished", Role.STRONG),
    RunState.SILENT: Mark("!", "silent", Role.BROKEN),
    RunState.GONE: Mark("!", "gone", Role.BROKEN),
}
_ORDER = {
    Outcome.REGRESSED.value: 0,
    Outcome.FAILED.value: 1,
    Outcome.DIFFERENT.value: 2,
    Outcome.ALLOWED.value: 3,
    Outcome.INCONCLUSIVE.value: 4,
    Outcome.INCOMPARABLE.value: 5,
    Outcome.NO_BASELINE.value: 6,
    Outcome.IMPROVED.value: 7,
    Outcome.UNCHANGED.value: 9,
    Outcome.SAME_CODE.value: 10,
}
"""What needs a look first; 8 stands for cases without an answer."""
_WORTH_A_LOOK = (Outcome.REGRESSED.value, Outcome.FAILED.value, Outcome.DIFFERENT.value)


def mark_of(case: CaseView) -> Mark:
    """What is said of a case: its outcome, or where it stands."""
    return _STATES[case.state] if case.outcome is None else mark_of_outcome(case.outcome)


def mark_of_outcome(outcome: str) -> Mark:
    """What is said of a case that has its answer."""
    return _OUTCOMES.get(outcome, Mark("?", outcome, Role.OPEN))


def mark_of_gate(outcome: str) -> Mark:
    """What is said of a whole run that ended."""
    return _GATES.get(outcome, Mark("=", outcome, Role.STRONG))


def mark_of_state(state: RunState) -> Mark:
    """Whether more is to be expected."""
    return _RUN_STATES[state]


def verdict_line(case: CaseView) -> Line:
    """`▲ regressed (advisory)`."""
    mark = mark_of(case)
    advisory = "" if case.is_gating else " (advisory)"
    return line(Span(f"{mark.sign} {mark.word}", mark.role), Span(advisory, Role.MUTED))


def urgency(case: CaseView) -> int:
    """What needs a look comes first."""
    if case.outcome is None:
        return 1 if case.state is CaseState.FAILED else 8
    return _ORDER.get(case.outcome, 5)


def is_worth_a_look(case: CaseView) -> bool:
    """Whether the key for the next flag stops here."""
    return case.state is CaseState.FAILED or case.outcome in _WORTH_A_LOOK


def tally(cases: Sequence[CaseView]) -> Line:
    """How many cases have which verdict so far: `▲ 1 regressed  = 12 unchanged  ○ 3 open`."""
    counts: Counter[Mark] = Counter()
    urgencies: dict[Mark, int] = {}
    for case in cases:
        is_final = case.outcome is not None or case.state in (CaseState.FAILED, CaseState.MEASURED)
        mark = mark_of(case) if is_final else _STATES[CaseState.OPEN]
        counts[mark] += 1
        urgencies[mark] = urgency(case)
    parts: list[str | Span] = []
    for mark in sorted(counts, key=lambda known: (urgencies[known], known.word)):
        parts += ["  "] if parts else []
        parts.append(Span(f"{mark.sign} {counts[mark]} {mark.word}", mark.role))
    return line(*parts)
