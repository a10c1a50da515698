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
from perfguard.gate.rules.confirmation import is_flagged
from perfguard.gate.rules.policy import effect_values
from perfguard.records.allowance import Allowance
from perfguard.records.facts import Fact, Severity, Value, fact
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

    The verdicts are those after every other ruling. An entry applies up to and including its last day, in UTC. Tags by
    case id are for patterns such as `tag:step`; different are cases whose arms do not compute the same thing.
    """
    return tuple(
        _ruled(verdict, named, policy, is_different=verdict.case_id in different)
        if is_flagged(verdict) and (named := _naming(verdict.case_id, allowances, today, tags or {}))
        else verdict
        for verdict in verdicts
    )


def allowance_notes(
    allowances: Sequence[Allowance],
    verdicts: Sequence[Verdict],
    today: date,
    *,
    tags: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Fact, ...]:
    """One note for each entry of the allow-list: whether `apply_allowances` used it, or it has expired."""
    used: dict[Allowance, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.ALLOWED:
            for entry in _naming(verdict.case_id, allowances, today, tags or {})[:1]:
                used.setdefault(entry, []).append(verdict.case_id)
    return tuple(_note(entry, used.get(entry, ()), today) for entry in allowances)


def _note(entry: Allowance, used: Sequence[str], today: date) -> Fact:
    until = entry.until.isoformat()
    if entry.has_expired(today):
        return fact("allowance.expired", severity=Severity.NOTABLE, pattern=entry.case, until=until)
    severity = Severity.NOTABLE if used else Severity.INFO
    values: dict[str, Value] = {"pattern": entry.case, "why": entry.reason, "case_ids": tuple(used)}
    return fact("allowance.used" if used else "allowance.unused", {**_limits(entry), **values}, severity=severity)


def _naming(
    case_id: str, allowances: Sequence[Allowance], today: date, tags: Mapping[str, Sequence[str]]
) -> list[Allowance]:
    """The entries that apply today and name a case, the strictest first."""
    active = [entry for entry in allowances if not entry.has_expired(today)]
    found = [entry for entry in active if names_case(entry.case, case_id, tags.get(case_id, ()))]
    return sorted(found, key=lambda entry: (entry.max_ratio, entry.until))


def _ruled(verdict: Verdict, named: Sequence[Allowance], policy: Policy, *, is_different: bool) -> Verdict:
    """A regressed verdict, allowed or with the reason why not, by the first of the entries that name it."""
    estimate, entry = verdict.comparison.estimate, named[0]
    limits = _limits(entry)
    beyond = tuple(finding.signal for finding in verdict.signals if _is_beyond(finding, entry))
    if estimate is None or not _is_slow_in_time(verdict, policy):
        obstacle = fact("allowance.only_for_time", limits)
    elif is_different:
        obstacle = fact("allowance.only_for_same_results", limits)
    # The estimate alone would wave through a case of which nothing is known; the test alone a slow but noisy one.
    elif estimate.log_ratio > math.log1p(entry.max_ratio) or p_slower(estimate, entry.max_ratio) <= policy.alpha:
        obstacle = fact("allowance.exceeded", limits)
    elif beyond:
        obstacle = fact("allowance.exceeded_by_signals", limits, signals=beyond)
    else:
        allowed = fact("allowance.applied", limits, why=entry.reason, entries=len(named) if len(named) > 1 else None)
        seen = fact("verdict.allowed_effect", effect_values(estimate.log_ratio, estimate.interval))
        return replace(verdict, outcome=Outcome.ALLOWED, allowance=allowed, reasons=(seen, allowed))
    return replace(verdict, reasons=(*verdict.reasons, obstacle))


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
