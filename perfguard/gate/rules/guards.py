"""Guards of a verdict: whether both arms compute the same thing, and whether each was measured on its own.

A benchmark that skips work is fast, and no faster. On the same seeds the arms must agree on what the benchmark is
recognised by: its loss or result, the norm of its gradients, and whatever it names itself. These are numbers of a
set-up, so comparing them costs no measuring time. And the arm that waits must leave the CPUs to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import Arm, CaseChecks, CaseIntrusion, Round
from perfguard.records.verdict import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Largest relative differences between arms that compute the same thing."""

    result: float  # Of a loss, a result, its norm, and whatever else a benchmark names
    gradient: float
    """Of numbers whose name begins with `gradient`: batch norm over a few values amplifies rounding in them."""


TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(result=0.001, gradient=0.01),
    "bf16": Tolerance(result=0.05, gradient=0.3),
    "fp16": Tolerance(result=0.01, gradient=0.1),
}
"""By the case's `dtype`.

Other instruction sets, thread counts and optimizer implementations were seen to move fp32 by 0.0006 % and 0.14 %, bf16
by 1.6 % and 12 %, all of it in ResNet-50 on tiny images; other cases a tenth of that and less
(docs/decisions/0004-numerics-tolerances.md). fp16, which no built-in case has, lies between by its precision.
"""

MAX_INTRUSION_RATIO = 0.05
"""An arm that takes more of the CPUs than this while the other is timed slows both arms alike, and so may hide more
than the smallest slowdown that a gate looks for."""

_DTYPE = re.compile(r"[\[,]dtype=(\w+)")
_REASSURING = (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.INCONCLUSIVE)


def guard_numerics(verdicts: Sequence[Verdict], checks: Sequence[CaseChecks]) -> tuple[Verdict, ...]:
    """Verdicts on cases whose arms do not compute the same thing become `different`.

    A number differs where its median relative difference over the blocks is beyond the tolerance, which puts at least
    half of the blocks beyond it. What regressed stays so, with the difference in its sentence; failures and missing
    baselines are left alone.

    There is a check for each case and block, as `RunData.checks` or `paired_with_stored` give them. Blocks and names
    that only one side has are not compared.
    """
    different = different_results(checks)
    guarded = []
    for verdict in verdicts:
        differences, reasons = different.get(verdict.case_id, ()), verdict.reasons
        if differences and verdict.outcome in _REASSURING:
            guarded.append(replace(verdict, outcome=Outcome.DIFFERENT, reasons=(*differences, *reasons)))
        elif differences and verdict.outcome is Outcome.REGRESSED:
            guarded.append(replace(verdict, reasons=(*reasons, *differences)))
        else:
            guarded.append(verdict)
    return tuple(guarded)


def different_results(checks: Sequence[CaseChecks]) -> dict[str, tuple[Fact, ...]]:
    """Cases whose sides do not compute the same, each with the numbers that differ; checks as for `guard_numerics`."""
    pairs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for entry in checks:
        of_case = pairs.setdefault(entry.case_id, {})
        for name, before in entry.baseline.items():
            if name in entry.candidate:
                of_case.setdefault(name, []).append((before, entry.candidate[name]))
    found: dict[str, tuple[Fact, ...]] = {}
    for case_id, named in pairs.items():
        tolerance = tolerance_of(case_id)
        for name, values in named.items():
            allowed = tolerance.gradient if name.startswith("gradient") else tolerance.result
            if median(_relative(before, after) for before, after in values) > allowed:
                found[case_id] = (*found.get(case_id, ()), _difference(name, values, allowed))
    return found


def tolerance_of(case_id: str) -> Tolerance:
    """Largest relative differences of a case's numbers, by the `dtype` in its id; `fp32` without one that is known."""
    found = _DTYPE.search(case_id)
    return TOLERANCES.get(found.group(1) if found else "fp32", TOLERANCES["fp32"])


def paired_with_stored(
    stored: Mapping[str, Sequence[Round]], fresh: Mapping[str, Sequence[Round]]
) -> tuple[CaseChecks, ...]:
    """Numbers of stored and fresh rounds, both by case id, that had the same data: one entry for each such round."""
    found: list[CaseChecks] = []
    for case_id, rounds in fresh.items():
        known = {entry.data_seed: entry.checks for entry in stored.get(case_id, ()) if entry.checks}
        found.extend(
            CaseChecks(
                case_id=case_id, data_seed=entry.data_seed, baseline=known[entry.data_seed], candidate=entry.checks
            )
            for entry in rounds
            if entry.data_seed is not None and entry.data_seed in known
        )
    return tuple(found)


def unchecked_note(
    verdicts: Sequence[Verdict], checks: Sequence[CaseChecks], *, why: Mapping[str, Value]
) -> tuple[Fact, ...]:
    """What could not be compared, as a note; none where every judged case was.

    The values `why` say the reason: its `cause`, and the seeds where they differ.
    """
    known = {entry.case_id for entry in checks if entry.baseline.keys() & entry.candidate.keys()}
    judged = [v.case_id for v in verdicts if v.outcome in (*_REASSURING, Outcome.REGRESSED)]
    missing = tuple(case_id for case_id in judged if case_id not in known)
    return (fact("result.unchecked", why, severity=Severity.NOTABLE, case_ids=missing),) if missing else ()


def guard_intrusion(verdicts: Sequence[Verdict], intrusions: Sequence[CaseIntrusion]) -> tuple[Verdict, ...]:
    """Verdicts that find nothing wrong become `inconclusive` where an arm did not leave the CPUs to the other.

    An arm intrudes where it does so in the median block. What is slower in spite of that stays `regressed`, and
    failures and missing baselines are left alone. `intrusions` has one entry for each case and block.
    """
    guarded = []
    for verdict in verdicts:
        entries = [entry for entry in intrusions if entry.case_id == verdict.case_id]
        seen = [
            *_intruding(Arm.BASELINE, Arm.CANDIDATE, (entry.baseline_ratio for entry in entries)),
            *_intruding(Arm.CANDIDATE, Arm.BASELINE, (entry.candidate_ratio for entry in entries)),
        ]
        intruded = replace(verdict, outcome=Outcome.INCONCLUSIVE, reasons=(*seen, *verdict.reasons))
        guarded.append(intruded if seen and verdict.outcome in _REASSURING else verdict)
    return tuple(guarded)


def _intruding(arm: Arm, other: Arm, ratios: Iterable[float | None]) -> tuple[Fact, ...]:
    """That an arm takes much of the CPUs while the other is timed; nothing where it does not."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or median(known) <= MAX_INTRUSION_RATIO:
        return ()
    values = {"other": other.value, "cpu_share": median(known), "limit_share": MAX_INTRUSION_RATIO}
    return (fact("arm.intruded", values, severity=Severity.GRAVE, arm=arm.value),)


def _relative(before: float, after: float) -> float:
    """Difference over the larger magnitude, so that exchanging the arms changes nothing; in [0, 2]."""
    return abs(after - before) / max(abs(before), abs(after)) if before != after else 0.0


def _difference(name: str, values: Sequence[tuple[float, float]], tolerance: float) -> Fact:
    before, after = median(before for before, _ in values), median(after for _, after in values)
    # Where blocks differ up and down, their medians look alike.
    is_scattered = _relative(before, after) <= tolerance
    return fact(
        "result.different",
        severity=Severity.GRAVE,
        name=name,
        baseline=before,
        candidate=after,
        change_percent=None if is_scattered or not before else (after / before - 1) * 100,
        is_scattered=is_scattered,
        tolerance_percent=tolerance * 100,
    )
