"""Which events are lines of a run's log, and how grave each of them is; the text is made where it is drawn."""

from __future__ import annotations

from collections.abc import Iterable

from perfguard.records.events import (
    ArmsCompared,
    CanaryTimed,
    CaseFailed,
    CaseFinished,
    Event,
    LookTaken,
    Noted,
    RunFinished,
    SliceTimed,
    StepsCounted,
    VerdictReached,
)
from perfguard.records.facts import Severity
from perfguard.records.verdict import GateOutcome, Outcome
from perfguard.watch.view.run_view import Level

_ERRORS = {Outcome.REGRESSED.value, Outcome.FAILED.value, GateOutcome.REGRESSED.value, GateOutcome.FAILED.value}
_WARNINGS = {
    *(Outcome.DIFFERENT.value, Outcome.INCOMPARABLE.value, Outcome.NO_BASELINE.value, Outcome.INCONCLUSIVE.value),
    *(GateOutcome.HOST_UNSTABLE.value, "interrupted"),
}


def level_of(event: Event) -> Level | None:
    """How grave an event is; None for what comes many times a second and for what its neighbours say, too."""
    match event:
        case SliceTimed() | CanaryTimed() | CaseFinished() | ArmsCompared(identical=False) | StepsCounted(changes=()):
            return None
        case LookTaken():
            return _worst(event.decided.values()) if event.decided or event.final else None
        case CaseFailed(skipped=False):
            return "error"
        case StepsCounted() | Noted():
            return "info" if isinstance(event, Noted) and event.fact.severity is Severity.INFO else "warning"
        case VerdictReached() | RunFinished():
            return _worst([event.outcome])
        case _:
            return "info"


def _worst(outcomes: Iterable[str]) -> Level:
    found = set(outcomes)
    if found & _ERRORS:
        return "error"
    return "warning" if found & _WARNINGS else "info"
