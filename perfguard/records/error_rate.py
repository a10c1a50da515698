"""What the A/A gates of a machine add up to: the numbers behind the error rate that a gate prints."""

from __future__ import annotations

from dataclasses import dataclass

from perfguard.records.estimate import Interval
from perfguard.records.pace import Pace

CERTIFIED_RATE = 0.01
"""A machine is certified once its false-alarm rate is shown to be at most this: 0 of 299 gates, or 1 of 473."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlarms:
    """How often gates were red although nothing had changed."""

    count: int
    """Red gates."""
    gates: int
    """A/A gates that reached a verdict."""
    bound: float
    """The rate is at most this, with 95 % confidence."""

    @property
    def is_certified(self) -> bool:
        """Whether a rate of at most 1 % is shown."""
        return self.bound <= CERTIFIED_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCase:
    """One case over all A/A gates."""

    case_id: str
    """The case."""
    gating: bool
    """Whether it could fail the latest gate."""
    gates: int
    """Gates that measured it."""
    blocks: int
    """Blocks of those gates together."""
    block_sd: float
    """Pooled SD of its block log-ratios; nan when unknown."""
    block_sd_interval: Interval
    """For that SD."""
    intraclass_correlation: float
    """Share of a sample's variance that its block shares; nan when unknown."""
    autocorrelation: float
    """Of neighbouring blocks inside a gate; nan when unknown."""
    autocorrelation_band: Interval
    """Where it falls if the order of the blocks means nothing."""
    placebo_gates: int
    """Gates with relocated arms that measured it."""
    placebo_spread: float
    """SD between gates of the true effect of a placebo; nan without a placebo gate."""
    placebo_floor_ratio: float
    """Smallest slowdown that layout luck does not explain; 0 where no placebo effect is shown."""
    margin_ratio: float
    """Smallest slowdown worth a flag: the configured margin or the placebo floor, whichever is larger."""
    mde: tuple[tuple[int, float], ...]
    """Minutes of a gate, and the slowdown of this case alone that it finds with 80 % power, the confirmation
    left out."""

    @property
    def is_autocorrelated(self) -> bool:
        """Whether chance alone does not explain the autocorrelation."""
        band = self.autocorrelation_band
        return self.autocorrelation < band.lower or self.autocorrelation > band.upper


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """Error rate, noise and pace of a machine's gates."""

    suite: str
    """Name of the suite."""
    first_at: str | None
    """When the first gate finished."""
    latest_at: str | None
    """When the latest gate finished."""
    gates: int
    """A/A gates, also those that reached no verdict."""
    placebo_gates: int
    """Gates with relocated arms."""
    pace: Pace
    """How long its blocks take."""
    false_alarms: FalseAlarms
    """Of the gate as a whole."""
    cases: tuple[CalibratedCase, ...]
    """Gating ones first, by id."""
