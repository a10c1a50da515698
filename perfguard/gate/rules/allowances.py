"""Slowdowns that the project's allow-list accepts: slower, said, and not red.

An entry covers the time of a case up to its limit, against whatever the gate compares with. It does not cover other
signals that grew beyond the limit, nor a case that computes something else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date

from perfguard.benchmarks.selection import names_case
from perfguard.gate.rules.reasons import effect_values
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, Value, fact
from perfguard.records.spec import Gating
from perfguard.records.verdict import Design, Outcome, Policy, SignalFinding, Verdict
from perfguard.stats.p_values import p_slower


def apply_allowances(
    verdicts: Sequence[Verdict],
    allowances: Sequence[Allowance],
    today: date,
    policy: Policy,
    *,
    tags: Mapping[str, Sequence[str]] | None = None,
    different: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """Verdicts in which regressions within an allowance are `allowed`.

    Covered is a gating case whose *time* regressed, whose estimate is at most the allowed slowdown, and which is not
    shown to be beyond it (one-sided, at the policy's level). Where several entries name a case, the strictest applies.
    What is beyond it, or not covered for another reason, stays regressed and says why.

    Args:
        verdicts: In the order of the suite, after every other ruling.
        allowances: The allow-list, expired entries too.
        today: UTC date; an entry applies up to and including its last day.
        policy: The rule that the verdicts were reached by.
        tags: Tags by case id, for patterns such as `tag:step`.
        different: Cases whose arms do not compute the same thing.
    """
    active = [entry for entry in allowances if not entry.has_expired(today)]
    return tuple(
        _ruled(verdict, _naming(verdict.case_id, active, tags or {}), policy, is_different=verdict.case_id in different)
        for verdict in verdicts
    )


def allowance_notes(
    allowances: Sequence[Allowance],
    verdicts: Sequence[Verdict],
    today: date,
    *,
    tags: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Fact, ...]:
    """One note for each entry of the allow-list: whether it was used, or has expired.

    Args:
        allowances: The allow-list, expired entries too.
        verdicts: After `apply_allowances`.
        today: UTC date.
        tags: As for `apply_allowances`.
    """
    active = [entry for entry in allowances if not entry.has_expired(today)]
    used: dict[Allowance, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.ALLOWED:
            for entry in _naming(verdict.case_id, active, tags or {})[:1]:
                used.setdefault(entry, []).append(verdict.case_id)
    return tuple(_note(entry, used.get(entry, ()), today) for entry in allowances)


def _note(entry: Allowance, used: Sequence[str], today: date) -> Fact:
    until = entry.until.isoformat()
    if entry.has_expired(today):
        return fact("allowance.expired", severity=Severity.NOTABLE, pattern=entry.case, until=until)
    severity = Severity.NOTABLE if used else Severity.INFO
    values: dict[str, Value] = {"pattern": entry.case, "why": entry.reason, "case_ids": tuple(used)}
    return fact("allowance.used" if used else "allowance.unused", {**_limits(entry), **values}, severity=severity)


def _naming(case_id: str, allowances: Sequence[Allowance], tags: Mapping[str, Sequence[str]]) -> tuple[Allowance, ...]:
    """The entries that name a case, the strictest first."""
    found = [entry for entry in allowances if names_case(entry.case, case_id, tags.get(case_id, ()))]
    return tuple(sorted(found, key=lambda entry: (entry.max_ratio, entry.until)))


def _ruled(verdict: Verdict, named: tuple[Allowance, ...], policy: Policy, *, is_different: bool) -> Verdict:
    estimate = verdict.comparison.estimate
    if not named or verdict.outcome is not Outcome.REGRESSED or verdict.gating is not Gating.GATING:
        return verdict
    entry = named[0]
    entries = len(named) if len(named) > 1 else None
    obstacle = _obstacle(verdict, entry, policy, is_different=is_different)
    if obstacle is not None or estimate is None:
        return replace(verdict, reasons=(*verdict.reasons, *([obstacle] if obstacle else ())))
    allowed = fact("allowance.applied", _limits(entry), why=entry.reason, entries=entries)
    seen = fact("verdict.allowed_effect", effect_values(estimate.log_ratio, estimate.interval))
    return replace(verdict, outcome=Outcome.ALLOWED, allowance=allowed, reasons=(seen, allowed))


def _obstacle(verdict: Verdict, entry: Allowance, policy: Policy, *, is_different: bool) -> Fact | None:
    """Why the entry does not cover the regression; None where it does."""
    limits = _limits(entry)
    estimate = verdict.comparison.estimate
    if not _is_slow_in_time(verdict, policy) or estimate is None:
        return fact("allowance.only_for_time", limits)
    if is_different:
        return fact("allowance.only_for_same_results", limits)
    # The estimate alone would wave through a case of which nothing is known; the test alone a slow but noisy one.
    if estimate.log_ratio > math.log1p(entry.max_ratio) or p_slower(estimate, entry.max_ratio) <= policy.alpha:
        return fact("allowance.exceeded", limits)
    beyond = tuple(finding.signal for finding in verdict.signals if _is_beyond(finding, entry))
    return fact("allowance.exceeded_by_signals", limits, signals=beyond) if beyond else None


def _limits(entry: Allowance) -> Mapping[str, Value]:
    return {"limit_ratio": entry.max_ratio, "until": entry.until.isoformat()}


def _is_slow_in_time(verdict: Verdict, policy: Policy) -> bool:
    """Whether the times alone made the case red; a signal may also redden one whose flag was not confirmed."""
    if verdict.p_adjusted is None or verdict.p_adjusted > policy.alpha:
        return False
    if verdict.modes is not None and verdict.modes.explains_effect and not verdict.modes.mix_changed:
        return False
    is_confirmed = verdict.confirmation is not None and verdict.confirmation.confirmed
    return is_confirmed or verdict.comparison.design is Design.ROUNDS


def _is_beyond(finding: SignalFinding, entry: Allowance) -> bool:
    if not finding.gating or finding.outcome is not Outcome.REGRESSED:
        return False
    return finding.baseline <= 0 or finding.candidate / finding.baseline - 1 > entry.max_ratio
