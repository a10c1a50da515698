"""What a stored baseline's numbers may decide by themselves, and what has to be measured in pairs.

Numbers of another day cannot tell another machine from other code (docs/decisions/0006-stored-baselines.md): they may
clear a case, they neither condemn nor praise one. Where most of a suite has moved, they do not clear either: one commit
seldom moves most cases, another host moves all of them, and a faster one hides a slowdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from perfguard.records.facts import Fact, Severity, fact
from perfguard.records.run import Round
from perfguard.records.spec import Case, Gating
from perfguard.records.verdict import Outcome, Verdict

MOVED_SHARE = 0.5
"""From this part of the gating cases on, the machine is taken to have moved, and nothing is cleared unpaired."""

SPEED_WORTH_TELLING = 0.02
"""Change of the control workload's time that is said; a ratio."""

_FEW = 2
"""One case that moved is a case, whatever the size of its suite."""
_MOVED = (Outcome.REGRESSED, Outcome.IMPROVED)
_UNCLEAR = (*_MOVED, Outcome.INCONCLUSIVE)
_SHOWN = (*_MOVED, Outcome.UNCHANGED)


def cases_to_pair(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> tuple[Case, ...]:
    """The gating cases that a stored baseline's numbers cannot clear, in the order of the suite.

    Args:
        cases: The suite's.
        verdicts: What the stored numbers say of them, in the same order.
    """
    machine_moved = has_machine_moved(cases, verdicts)
    return tuple(
        case
        for case, verdict in zip(cases, verdicts, strict=True)
        if case.gating is Gating.GATING
        and (
            verdict.outcome in _UNCLEAR
            # Noise between rounds demotes a case against stored numbers; pairs may well be quiet enough to decide it.
            or (verdict.outcome is Outcome.UNCHANGED and (machine_moved or verdict.gating is Gating.ADVISORY))
        )
    )


def has_machine_moved(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> bool:
    """Whether so many gating cases are shown to be slower or faster that the machine is the likely reason."""
    gating = [verdict.outcome for case, verdict in zip(cases, verdicts, strict=True) if case.gating is Gating.GATING]
    return sum(outcome in _MOVED for outcome in gating) >= max(_FEW, MOVED_SHARE * len(gating))


def speed_note(stored: Mapping[str, Sequence[Round]], fresh: Mapping[str, Sequence[Round]]) -> tuple[Fact, ...]:
    """What the control workload says of the machine, then and now; nothing where it hardly moved.

    Without it a reader wonders why an effect is not the ratio of the two medians beside it.

    Args:
        stored: The baseline's rounds by case id.
        fresh: This run's rounds.
    """
    before, now = _control_s(stored.values()), _control_s(fresh.values())
    if before is None or now is None or abs(math.log(now / before)) < math.log1p(SPEED_WORTH_TELLING):
        return ()
    return (fact("host.speed_changed", severity=Severity.NOTABLE, log_ratio=math.log(now / before)),)


def _control_s(cases: Iterable[Sequence[Round]]) -> float | None:
    values = [median(entry.control_s) for rounds in cases for entry in rounds if entry.control_s]
    typical = median(values) if values else 0.0
    return typical if typical > 0 else None


def left_open(verdict: Verdict, *, why: tuple[Fact, ...]) -> Verdict:
    """The verdict of a gating case that could not be paired: what the stored numbers show of it stays open.

    Args:
        verdict: By the stored numbers.
        why: Why they do not decide.
    """
    if verdict.gating is not Gating.GATING or verdict.outcome not in _SHOWN:
        return verdict
    open_ = fact("stored.left_open", severity=Severity.NOTABLE, outcome=verdict.outcome.value)
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(open_, *why, *verdict.reasons))
