"""Whether both arms compute the same thing: a benchmark that skips work is fast, and no faster.

On the same seeds the arms must agree on what the benchmark is recognised by: its loss or result, the norm of its
gradients, and whatever it names itself. The comparison is between numbers of a set-up, so it costs no measuring time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.run import CaseChecks, Round
from perfguard.records.verdict import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Largest relative differences between arms that compute the same thing."""

    result: float
    """Of a loss, a result, its norm, and whatever else a benchmark names."""
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

DEFAULT_DTYPE = "fp32"
"""For cases without a `dtype` parameter, or with another value."""

_DTYPE = re.compile(r"[\[,]dtype=(\w+)")
_DECIDED = (Outcome.IMPROVED, Outcome.UNCHANGED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class _Difference:
    name: str
    baseline: float
    candidate: float
    tolerance: float


def guard_numerics(verdicts: Sequence[Verdict], checks: Sequence[CaseChecks]) -> tuple[Verdict, ...]:
    """Verdicts on cases whose arms do not compute the same thing become `different`.

    A number differs where its median relative difference over the blocks is beyond the tolerance, which puts at least
    half of the blocks beyond it. What regressed stays so, with the difference in its sentence; failures and missing
    baselines are left alone.

    Args:
        verdicts: In the order of the suite.
        checks: One entry for each case and block, as `RunData.checks` or `paired_with_stored` give them. Blocks and
            names that only one side has are not compared.
    """
    differences = different_results(checks)
    return tuple(_guarded(verdict, differences.get(verdict.case_id, ())) for verdict in verdicts)


def different_results(checks: Sequence[CaseChecks]) -> dict[str, tuple[Fact, ...]]:
    """Cases whose sides do not compute the same, each with the numbers that differ.

    Args:
        checks: As for `guard_numerics`.
    """
    by_case: dict[str, list[CaseChecks]] = {}
    for entry in checks:
        by_case.setdefault(entry.case_id, []).append(entry)
    found = {case_id: _differences(entries, tolerance_of(case_id)) for case_id, entries in by_case.items()}
    return {
        case_id: tuple(_described(difference) for difference in differences)
        for case_id, differences in found.items()
        if differences
    }


def tolerance_of(case_id: str) -> Tolerance:
    """Largest relative differences that a case's numbers may have, by the `dtype` in its id."""
    found = _DTYPE.search(case_id)
    return TOLERANCES.get(found.group(1) if found else DEFAULT_DTYPE, TOLERANCES[DEFAULT_DTYPE])


def paired_with_stored(
    stored: Mapping[str, Sequence[Round]], fresh: Mapping[str, Sequence[Round]]
) -> tuple[CaseChecks, ...]:
    """Numbers of stored and fresh rounds that had the same data.

    Args:
        stored: Rounds of the baseline by case id.
        fresh: Rounds of the candidate by case id.

    Returns:
        One entry for each fresh round whose seed the baseline also had.
    """
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

    Args:
        verdicts: In the order of the suite.
        checks: As for `guard_numerics`.
        why: Why that is: `cause`, and the seeds where they differ.
    """
    known = {entry.case_id for entry in checks if entry.baseline.keys() & entry.candidate.keys()}
    judged = [v.case_id for v in verdicts if v.outcome in (*_DECIDED, Outcome.REGRESSED)]
    missing = tuple(case_id for case_id in judged if case_id not in known)
    return (fact("result.unchecked", why, severity=Severity.NOTABLE, case_ids=missing),) if missing else ()


def _differences(entries: Sequence[CaseChecks], tolerance: Tolerance) -> tuple[_Difference, ...]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        for name, before in entry.baseline.items():
            if name in entry.candidate:
                pairs.setdefault(name, []).append((before, entry.candidate[name]))
    found = []
    for name, values in pairs.items():
        allowed = tolerance.gradient if name.startswith("gradient") else tolerance.result
        if median(_relative(before, after) for before, after in values) > allowed:
            typical = (median(before for before, _ in values), median(after for _, after in values))
            found.append(_Difference(name, *typical, allowed))
    return tuple(found)


def _relative(before: float, after: float) -> float:
    """Difference over the larger magnitude, so that exchanging the arms changes nothing; in [0, 2]."""
    return abs(after - before) / max(abs(before), abs(after)) if before != after else 0.0


def _guarded(verdict: Verdict, differences: tuple[Fact, ...]) -> Verdict:
    if differences and verdict.outcome in _DECIDED:
        return replace(verdict, outcome=Outcome.DIFFERENT, reasons=(*differences, *verdict.reasons))
    if differences and verdict.outcome is Outcome.REGRESSED:
        return replace(verdict, reasons=(*verdict.reasons, *differences))
    return verdict


def _described(difference: _Difference) -> Fact:
    # Where blocks differ up and down, their medians look alike.
    before, after = difference.baseline, difference.candidate
    is_scattered = _relative(before, after) <= difference.tolerance
    return fact(
        "result.different",
        severity=Severity.GRAVE,
        name=difference.name,
        baseline=before,
        candidate=after,
        change_percent=None if is_scattered or not before else (after / before - 1) * 100,
        is_scattered=is_scattered,
        tolerance_percent=difference.tolerance * 100,
    )
