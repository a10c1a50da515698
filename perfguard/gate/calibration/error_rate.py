"""The error rate of a gate: measured on this machine, measured but no longer valid, or nominal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum

from msgspec import Struct

from perfguard.records.calibration import LEAST_BLOCKS, Calibration, CalibrationSummary, FalseAlarms, Scope
from perfguard.records.facts import Fact, Severity, Value, fact

MAX_AGE_DAYS = 90  # Machines change in ways that no fingerprint shows; after this long the gates must be repeated
_CLOCKS_DIFFER = timedelta(days=1)  # So far may the clocks of machines that share a calibration be apart
_UNKNOWN: Mapping[str, Value] = {}


class CalibrationStatus(str, Enum):
    """Whether what was measured still holds."""

    VALID = "valid"
    EXPIRED = "expired"
    ABSENT = "absent"


class CalibrationState(Struct, frozen=True, kw_only=True):
    """Whether a calibration may be relied on."""

    status: CalibrationStatus
    reason: Fact

    @property
    def is_valid(self) -> bool:
        """Whether its error rate is that of a gate now."""
        return self.status is CalibrationStatus.VALID


def calibration_state(calibration: Calibration | None, scope: Scope, *, now: datetime) -> CalibrationState:
    """Whether a calibration holds for gates of this scope; an unknown `stack_id` is not held against it."""
    status, reason = CalibrationStatus.ABSENT, fact("calibration.absent")
    if calibration is not None and calibration.gates:
        status, reason = CalibrationStatus.VALID, fact("calibration.valid", gates=len(calibration.gates))
        if obstacle := scope_difference(calibration.scope, scope) or _age(calibration, now):
            status, reason = CalibrationStatus.EXPIRED, obstacle
    return CalibrationState(status=status, reason=reason)


def scope_difference(stored: Scope, scope: Scope) -> Fact | None:
    """The first thing that makes gates of one scope say nothing about the other; None where nothing does."""
    names = sorted(stored.software.keys() & scope.software.keys(), key=lambda name: (name != "torch", name))
    software: list[tuple[str, Value, Value]] = [(name, stored.software[name], scope.software[name]) for name in names]
    if scope.stack_id is not None:  # last: versions tell more, where they differ
        software.append(("software", stored.stack_id or "unknown", scope.stack_id))
    compared: list[tuple[str, Value, Value]] = [
        ("machine", stored.machine_id, scope.machine_id),
        *software,
        ("CPUs", stored.cpus, scope.cpus),
        ("env_profile", stored.env_profile, scope.env_profile),
        ("decision rule", stored.rule, scope.rule),
    ]
    for what, before, after in compared:
        if before != after:
            return fact("calibration.changed", what=what, before=before, after=after)
    what, before, after = "alpha", stored.alpha, scope.alpha
    if before >= after:  # a lower level flags less, so what was measured at a higher one still bounds it
        what, before, after = "margin", stored.margin_ratio, scope.margin_ratio
        if before <= after:  # so does a wider margin
            return None
    return fact("calibration.level_changed", what=what, before_ratio=before, after_ratio=after)


def error_rate(
    state: CalibrationState,
    summary: CalibrationSummary | None,
    *,
    alpha: float,
    reach: Mapping[str, Value] = _UNKNOWN,
    screens: bool = False,
) -> Fact:
    """The error rate of a gate: `rate.calibrated`, `.not_yet`, `.expired` or `.not_calibrated`.

    `reach` is what gates of this budget find with 80 % power: `low_ratio` and `high_ratio`, over the gating cases, and
    `budget_s`; empty where that is not known. A gate `screens` where a stored baseline clears what it can, so that the
    rate is that of the pairs: the numbers of another day have no error rate that could be measured
    (docs/decisions/0006-stored-baselines.md).
    """
    if state.status is CalibrationStatus.ABSENT or summary is None:
        return nominal(alpha)
    found: dict[str, Value] = {"screens": screens}
    alarms = false_alarm_values(summary.false_alarms)
    if not state.is_valid:
        found |= state.reason.values
        values = {**alarms, **found, "reason": state.reason.code}
        return fact("rate.expired", values, severity=Severity.NOTABLE, alpha_ratio=alpha)
    found |= reach
    if not summary.false_alarms.gates:
        found |= {"gates": summary.gates, "needed_blocks": LEAST_BLOCKS}
        return fact("rate.not_yet", found, severity=Severity.NOTABLE, alpha_ratio=alpha)
    # Notable though all is well: a verdict without its error rate says little.
    latest = (summary.latest_at or "")[:10]
    return fact("rate.calibrated", {**alarms, **found}, severity=Severity.NOTABLE, latest=latest)


def nominal(alpha: float) -> Fact:
    """The error rate of a gate whose machine was never calibrated."""
    return fact("rate.not_calibrated", severity=Severity.NOTABLE, alpha_ratio=alpha)


def false_alarm_values(found: FalseAlarms) -> Mapping[str, Value]:
    """False alarms as values of a fact."""
    return {
        "false_alarms": found.count,
        "gates": found.gates,
        "bound_ratio": found.bound,
        "is_certified": found.is_certified,
    }


def _age(calibration: Calibration, now: datetime) -> Fact | None:
    latest = max(datetime.fromisoformat(gate.finished_at.replace("Z", "+00:00")) for gate in calibration.gates)
    age = (now - latest).days
    if age > MAX_AGE_DAYS:
        return fact("calibration.old", days=age, limit=MAX_AGE_DAYS)
    return fact("calibration.from_the_future", date=f"{latest:%Y-%m-%d}") if latest - now > _CLOCKS_DIFFER else None
