"""What a gate may say of its own error rates: measured on this machine, measured but no longer valid, or nominal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from perfguard.gate.calibration.summary import false_alarms
from perfguard.records.calibration import LEAST_BLOCKS, Calibration, Scope
from perfguard.records.contract import CalibrationSummary, FalseAlarms
from perfguard.units import format_count, format_duration, format_ratio

MAX_AGE_DAYS = 90
"""Machines change in ways that no fingerprint shows; after this long the gates must be repeated."""

_CLOCKS_DIFFER = timedelta(days=1)
"""So far may the clocks of machines that share a calibration be apart."""

_REMEDY = "run `perfguard calibrate`"


class CalibrationStatus(str, Enum):
    """Whether what was measured still holds."""

    VALID = "valid"
    EXPIRED = "expired"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationState:
    """Whether a calibration may be relied on."""

    status: CalibrationStatus
    """The answer."""
    reason: str
    """One sentence that a person can act on."""

    @property
    def is_valid(self) -> bool:
        """Whether a gate may state it as its contract."""
        return self.status is CalibrationStatus.VALID


def calibration_state(calibration: Calibration | None, scope: Scope, *, now: datetime) -> CalibrationState:
    """Whether a calibration holds for gates of this scope.

    Args:
        calibration: As stored; None where there is none.
        scope: Of the gate at hand. An unknown `stack_id` is not held against the calibration.
        now: Aware time.
    """
    if calibration is None or not calibration.gates:
        return CalibrationState(status=CalibrationStatus.ABSENT, reason=f"not calibrated; {_REMEDY}")
    reason = next(_differences(calibration, scope, now), None)
    if reason is not None:
        return CalibrationState(status=CalibrationStatus.EXPIRED, reason=f"expired: {reason}; {_REMEDY}")
    gates = format_count(len(calibration.gates), "A/A gate")
    return CalibrationState(status=CalibrationStatus.VALID, reason=f"valid: {gates} on this machine")


def scope_difference(stored: Scope, scope: Scope) -> str | None:
    """The first thing that makes gates of one scope say nothing about the other; None where nothing does."""
    return next(_scope_differences(stored, scope), None)


def contract_sentence(
    state: CalibrationState,
    summary: CalibrationSummary | None,
    *,
    alpha: float,
    effects: tuple[float, float] | None = None,
    budget_s: float = math.nan,
) -> str:
    """What a gate prints of its error rates.

    Args:
        state: Whether the calibration holds.
        summary: Of the calibration; None where there is none.
        alpha: Nominal family-wise level of the gate.
        effects: Smallest and largest slowdown that a gate of this budget finds with 80 % power, over its gating cases,
            the confirmation left out.
        budget_s: Wall seconds of the gate.

    Returns:
        `calibrated on this machine: 0 of 35 A/A gates gave a false alarm: at most 8.2 % with 95 % confidence (…)`, or a
        sentence that begins with `calibration expired` or `uncalibrated`.
    """
    nominal = _nominal(alpha)
    if state.status is CalibrationStatus.ABSENT or summary is None:
        return f"uncalibrated: {nominal}, it has not been measured on this machine; {_REMEDY}"
    alarms = false_alarm_sentence(summary.false_alarms)
    latest = (summary.latest_at or "")[:10]
    if not state.is_valid:
        why = state.reason.removeprefix("expired: ")
        return f"calibration expired: {why}; until then {nominal} (before, {alarms})"
    found = _found(effects, budget_s)
    if not summary.false_alarms.gates:
        gates = format_count(summary.gates, "A/A gate")
        return (
            f"not calibrated yet: none of {gates} decided on {LEAST_BLOCKS} blocks of a gating case; {nominal}{found}"
        )
    return f"calibrated on this machine: {alarms} (latest {latest}){found}"


def selection_sentence(alpha: float) -> str:
    """What a gate of cases that were selected by name prints: no calibration is made of such a gate."""
    return f"uncalibrated: {_nominal(alpha)}; calibrations are of suites, and these cases were selected by name"


def _nominal(alpha: float) -> str:
    return f"the false-alarm rate per gate is nominal (alpha {alpha:.1%})"


def screening_sentence(state: CalibrationState, contract: str) -> str:
    """What a gate against a stored baseline prints, whose open cases are paired with the baseline's commit.

    Only the pairs can turn such a gate red, and they follow the rule that A/A gates calibrate; the numbers of another
    day have no error rate that could be measured (docs/decisions/0006-stored-baselines.md).

    Args:
        state: Whether the calibration of paired gates holds.
        contract: The `contract_sentence` of paired gates.
    """
    if state.status is CalibrationStatus.ABSENT:
        return contract
    return f"stored numbers only clear cases; what they leave open is paired, and of paired gates: {contract}"


def false_alarm_sentence(found: FalseAlarms) -> str:
    """`0 of 35 A/A gates gave a false alarm: at most 8.2 % with 95 % confidence`."""
    if not found.gates:
        return "no A/A gate has reached a verdict yet"
    certified = ", certified" if found.is_certified else ""
    bound = f"{100 * found.bound:.{'0f' if found.bound > 0.1 else '2g'}} %"
    return (
        f"{found.count} of {found.gates} A/A gates gave a false alarm: at most {bound} with 95 % confidence{certified}"
    )


def contract_of(calibration: Calibration) -> str:
    """The false alarms of a calibration as one sentence."""
    return false_alarm_sentence(false_alarms(calibration))


def _found(effects: tuple[float, float] | None, budget_s: float) -> str:
    if effects is None:
        return ""
    low, high = ("over 100 %" if effect > 1 else format_ratio(effect) for effect in effects)
    span = low if low == high else f"{low} to {high}, by case"
    return f"; gates of {format_duration(budget_s)} find slowdowns of {span}, with 80 % power, confirmation left out"


def _differences(calibration: Calibration, scope: Scope, now: datetime) -> Iterator[str]:
    yield from _scope_differences(calibration.scope, scope)
    latest = max(datetime.fromisoformat(gate.finished_at.replace("Z", "+00:00")) for gate in calibration.gates)
    age = (now - latest).days
    if age > MAX_AGE_DAYS:
        yield f"the latest A/A gate is {age} days old (limit {MAX_AGE_DAYS})"
    if latest - now > _CLOCKS_DIFFER:
        yield f"the latest A/A gate is of {latest:%Y-%m-%d}, which is yet to come; a clock is wrong"


def _scope_differences(stored: Scope, scope: Scope) -> Iterator[str]:
    if stored.machine_id != scope.machine_id:
        yield f"another machine, {stored.machine_id} → {scope.machine_id}"
    software = _software_difference(stored, scope)
    if software is not None:
        yield software
    if stored.cpus != scope.cpus:
        yield f"measured on {format_count(stored.cpus, 'CPU')} → {scope.cpus}"
    if stored.env_profile != scope.env_profile:
        yield f"env_profile {stored.env_profile} → {scope.env_profile}"
    if stored.rule != scope.rule:
        yield f"the gate's decision rule changed (version {stored.rule} → {scope.rule})"
    if stored.alpha != scope.alpha:
        yield f"alpha {format_ratio(stored.alpha)} → {format_ratio(scope.alpha)}"
    if stored.margin_ratio > scope.margin_ratio:
        # A wider margin flags less, so what was measured with a narrower one still bounds it.
        yield f"margin {format_ratio(stored.margin_ratio)} → {format_ratio(scope.margin_ratio)}"


def _software_difference(stored: Scope, scope: Scope) -> str | None:
    """Versions that changed, torch first; the identities where only something smaller did."""
    names = sorted(stored.software.keys() & scope.software.keys(), key=lambda name: (name != "torch", name))
    changed = [
        f"{name} {stored.software[name]} → {scope.software[name]}"
        for name in names
        if stored.software[name] != scope.software[name]
    ]
    if changed:
        return ", ".join(changed)
    if scope.stack_id is not None and stored.stack_id != scope.stack_id:
        return f"software {stored.stack_id or 'unknown'} → {scope.stack_id}"
    return None
