"""Whether the arms were measured each on its own: the one that waits must leave the CPUs to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from perfguard.records.facts import Severity, fact
from perfguard.records.run import Arm, CaseIntrusion
from perfguard.records.verdict import Outcome, Verdict

MAX_INTRUSION_RATIO = 0.05
"""An arm that takes more of the CPUs than this while the other is timed slows both arms alike, and so may hide more
than the smallest slowdown that a gate looks for."""

_OTHER = {Arm.BASELINE: Arm.CANDIDATE, Arm.CANDIDATE: Arm.BASELINE}
_REASSURING = (Outcome.UNCHANGED, Outcome.IMPROVED, Outcome.INCONCLUSIVE)


def guard_intrusion(verdicts: Sequence[Verdict], intrusions: Sequence[CaseIntrusion]) -> tuple[Verdict, ...]:
    """Verdicts that find nothing wrong become `inconclusive` where an arm did not leave the CPUs to the other.

    An arm intrudes where it does so in the median block. What is slower in spite of that stays `regressed`, and
    failures and missing baselines are left alone.

    Args:
        verdicts: In the order of the suite.
        intrusions: One entry for each case and block, as `RunData.intrusions` gives them.
    """
    by_case: dict[str, list[CaseIntrusion]] = {}
    for entry in intrusions:
        by_case.setdefault(entry.case_id, []).append(entry)
    return tuple(_guarded(verdict, _intruders(by_case.get(verdict.case_id, ()))) for verdict in verdicts)


def _intruders(entries: Sequence[CaseIntrusion]) -> dict[Arm, float]:
    """Arms that intrude, with the share of the CPUs that they take."""
    ratios = {
        Arm.BASELINE: [entry.baseline_ratio for entry in entries if entry.baseline_ratio is not None],
        Arm.CANDIDATE: [entry.candidate_ratio for entry in entries if entry.candidate_ratio is not None],
    }
    typical = {arm: median(known) for arm, known in ratios.items() if known}
    return {arm: ratio for arm, ratio in typical.items() if ratio > MAX_INTRUSION_RATIO}


def _guarded(verdict: Verdict, intruders: Mapping[Arm, float]) -> Verdict:
    if not intruders or verdict.outcome not in _REASSURING:
        return verdict
    seen = [
        fact(
            "arm.intruded",
            severity=Severity.GRAVE,
            arm=arm.value,
            other=_OTHER[arm].value,
            cpu_share=ratio,
            limit_share=MAX_INTRUSION_RATIO,
        )
        for arm, ratio in intruders.items()
    ]
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(*seen, *verdict.reasons))
