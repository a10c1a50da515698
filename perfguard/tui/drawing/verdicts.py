"""A sign, a word and a role for what is said of a case, the same on every screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.tui.drawing.spans import Line, Role, Span, line
from perfguard.watch.view.run_view import CaseState, CaseView, RunState


class WordStyle(NamedTuple):
    """How a word is shown."""

    sign: str
    word: str
    role: Role

    @property
    def span(self) -> Span:
        """`▲ regressed` in its role."""
        return Span(f"{self.sign} {self.word}", self.role)


_OUTCOMES = {
    Outcome.REGRESSED.value: WordStyle("▲", "regressed", Role.SLOWER),
    Outcome.FAILED.value: WordStyle("✗", "failed", Role.BROKEN),
    Outcome.INVALID.value: WordStyle("✗", "invalid", Role.BROKEN),
    Outcome.DIFFERENT.value: WordStyle("!", "different", Role.BROKEN),
    Outcome.ALLOWED.value: WordStyle("△", "allowed", Role.SLOWER),
    Outcome.INCONCLUSIVE.value: WordStyle("?", "inconclusive", Role.OPEN),
    Outcome.INCOMPARABLE.value: WordStyle("≠", "incomparable", Role.OPEN),
    Outcome.NO_BASELINE.value: WordStyle("∅", "no baseline", Role.OPEN),
    Outcome.IMPROVED.value: WordStyle("▼", "faster", Role.FASTER),
    Outcome.UNCHANGED.value: WordStyle("=", "unchanged", Role.SAME),
    Outcome.UNTOUCHED.value: WordStyle("≡", "untouched", Role.SAME),
    Outcome.SAME_CODE.value: WordStyle("≡", "same code", Role.SAME),
}
"""What needs a look first; cases without an answer stand between the faster and the unchanged ones."""
_GATES = {
    **_OUTCOMES,
    GateOutcome.PASS.value: WordStyle("=", "pass", Role.SAME),
    GateOutcome.HOST_UNSTABLE.value: WordStyle("?", "host unstable", Role.OPEN),
}
_STATES = {
    CaseState.WAITING: WordStyle("·", "waiting", Role.MUTED),
    CaseState.MEASURING: WordStyle("●", "measuring", Role.ACCENT),
    CaseState.OPEN: WordStyle("○", "open", Role.MUTED),
    CaseState.MEASURED: WordStyle("·", "measured", Role.MUTED),
    CaseState.ANSWERED: WordStyle("=", "answered", Role.SAME),
    CaseState.FAILED: WordStyle("✗", "failed", Role.BROKEN),
}
RUN_STATES = {
    RunState.WAITING: WordStyle("·", "waiting", Role.MUTED),
    RunState.PREPARING: WordStyle("○", "preparing", Role.ACCENT),
    RunState.MEASURING: WordStyle("●", "measuring", Role.ACCENT),
    RunState.FINISHED: WordStyle("✓", "finished", Role.STRONG),
    RunState.SILENT: WordStyle("!", "silent", Role.BROKEN),
    RunState.GONE: WordStyle("!", "gone", Role.BROKEN),
}
"""Whether more is to be expected of a run."""
_URGENCY = {outcome: float(place) for place, outcome in enumerate(_OUTCOMES)}
_UNANSWERED = _URGENCY[Outcome.IMPROVED.value] + 0.5
_WORTH_A_LOOK = (Outcome.REGRESSED.value, Outcome.FAILED.value, Outcome.INVALID.value, Outcome.DIFFERENT.value)


def mark_of(case: CaseView) -> WordStyle:
    """What is said of a case: its outcome, or where it stands."""
    return _STATES[case.state] if case.outcome is None else mark_of_outcome(case.outcome)


def mark_of_outcome(outcome: str | None) -> WordStyle:
    """What is said of a case that has its answer; without a comparison it is only measured."""
    return (
        _STATES[CaseState.MEASURED] if outcome is None else _OUTCOMES.get(outcome, WordStyle("?", outcome, Role.OPEN))
    )


def mark_of_gate(outcome: str) -> WordStyle:
    """What is said of a whole run that ended."""
    return _GATES.get(outcome, WordStyle("=", outcome, Role.STRONG))


def urgency(case: CaseView) -> float:
    """What needs a look comes first."""
    if case.outcome is None:
        return _URGENCY[Outcome.FAILED.value] if case.state is CaseState.FAILED else _UNANSWERED
    return _URGENCY.get(case.outcome, _URGENCY[Outcome.INCOMPARABLE.value])


def is_worth_a_look(case: CaseView) -> bool:
    """Whether the key for the next flag stops here."""
    return case.state is CaseState.FAILED or case.outcome in _WORTH_A_LOOK


def tally(cases: Sequence[CaseView]) -> Line:
    """How many cases have which verdict so far: `▲ 1 regressed  = 12 unchanged  (advisory: ○ 3)`."""
    gating = [
        Span(f"{mark.sign} {count} {mark.word}", mark.role)
        for mark, count in _counted(case for case in cases if case.is_gating)
    ]
    advisory = ", ".join(
        f"{mark.sign} {count}" for mark, count in _counted(case for case in cases if not case.is_gating)
    )
    parts = [*gating, Span(f"(advisory: {advisory})", Role.MUTED)] if advisory else gating
    return line(*(piece for part in parts for piece in (Span("  "), part)))[1:]


def _counted(cases: Iterable[CaseView]) -> list[tuple[WordStyle, int]]:
    """What is said of how many cases, in order of urgency."""
    counts: Counter[tuple[float, str, WordStyle]] = Counter()
    for case in cases:
        is_final = case.outcome is not None or case.state in (CaseState.FAILED, CaseState.MEASURED)
        mark = mark_of(case) if is_final else _STATES[CaseState.OPEN]
        counts[urgency(case), mark.word, mark] += 1
    return [(mark, count) for (_, _, mark), count in sorted(counts.items())]
