"""What A/A gates said of a machine, what they add up to, and the plan that is made from them.

Stored calibrations hold raw values only, so that nothing is kept twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, field

from perfguard.records.estimate import Interval
from perfguard.records.facts import Fact
from perfguard.records.verdict import GateOutcome, Policy

CALIBRATION_SCHEMA = 1

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # UTC, ISO 8601

DECISION_RULE = 8
"""Version of the gate's rule; raise it whenever the rule flags other cases. 1: one look at the end. 2: looks at growing
data, confirmation of flags. 3: blocks weighted by the scatter of their samples. 4: the time for confirmations measures
where nothing is flagged. 5: cases too noisy to gate are tested in the family only, and measured on until it decides.
6: confirmations of up to 20 blocks; analyses are planned anew as blocks get shorter. 7: workers of some blocks in a row
are forked from one process; intervals get wider where blocks are alike; modes explain no shift beyond the margin.
8: short cases have more samples in a block than long ones."""

COUNTED = (GateOutcome.PASS.value, GateOutcome.REGRESSED.value, GateOutcome.INCONCLUSIVE.value)
"""Outcomes that count as a trial. On a disturbed host a gate says nothing, which is no evidence for the rule either."""


LEAST_BLOCKS = Policy().min_blocks  # With fewer blocks no gating case can be flagged, so such a gate is no trial either


class Scope(Struct, frozen=True, kw_only=True):
    """What a calibration is valid for: the machine, the software, and the rule."""

    machine_id: str
    stack_id: str | None  # Identity of the software; None where it is not known
    software: dict[str, str] = field(default_factory=dict)  # Versions for a reader, `torch` and `python`
    cpus: int  # CPUs that were measured on
    env_profile: str  # `stable` or `production`
    rule: int
    alpha: float
    margin_ratio: float  # Margin of the gates, before any placebo floor


class CaseSample(Struct, frozen=True, kw_only=True):
    """One case in one A/A gate."""

    gating: bool  # Whether it could fail the gate
    block_log_ratios: tuple[float, ...]  # By block, without voided ones, in the order they ran, candidate over baseline
    samples: int  # Paired samples that made a block's value, typically
    sample_variance: float | None  # Mean over blocks of the variance of one paired sample; None with a single sample
    block_variances: tuple[float | None, ...] = ()
    """Squared standard error of each block's value from its samples alone, None where they are too few; empty where the
    rule did not weight blocks yet."""
    blocks: int = 0  # Blocks that measured it, voided ones with them; 0 in older calibrations
    wall_s: float | None = None  # Wall seconds of a block that it took: set-up in both arms, warm-ups, samples


class AAGate(Struct, frozen=True, kw_only=True):
    """One gate whose arms were the same."""

    run_id: str  # The run it came from; a run counts once
    finished_at: str  # UTC time, ISO 8601
    outcome: str  # Value of GateOutcome, by the times alone
    flagged: tuple[str, ...]  # Gating cases that were called regressed
    placebo: bool  # Whether the arms lay at paths of unequal length with environments of unequal size
    banked: bool  # Whether it was a gate of somebody's work that turned out to compare a thing with itself
    blocks: int  # Blocks that ran, without those of a confirmation
    block_s: float  # Wall seconds of a block that held every case, typically
    duration_s: float
    overhead_s: float  # Wall seconds of it that were not blocks
    startup_s: float | None = None  # Wall seconds of a block beside its cases, typically; None where not known
    cases: dict[str, CaseSample]  # By case id

    @property
    def is_counted(self) -> bool:
        """Whether it is a trial of the rule."""
        most = max((len(sample.block_log_ratios) for sample in self.cases.values() if sample.gating), default=0)
        return self.outcome in COUNTED and most >= LEAST_BLOCKS

    @property
    def is_false_alarm(self) -> bool:
        """Whether it was red although nothing had changed."""
        return self.is_counted and self.outcome == GateOutcome.REGRESSED.value


class Calibration(Struct, frozen=True, kw_only=True):
    """All A/A gates of one suite on one machine."""

    schema: int = CALIBRATION_SCHEMA
    perfguard: str  # Version of perfguard that wrote it last
    suite: str
    scope: Scope
    gates: tuple[AAGate, ...] = ()  # By the time they finished


class CasePace(Struct, frozen=True, kw_only=True):
    """What one case adds to blocks."""

    wall_s: float  # Wall seconds of a block that it takes, typically: its set-up in both arms, warm-ups and samples
    stays: tuple[float, ...]
    """Chance that it is still measured in the n-th block of a gate that changes nothing in it, from the first block on;
    the last value holds for all later blocks."""

    def stay_in(self, block: int) -> float:
        """Chance that it is still measured in a block, counted from 1."""
        return self.stays[min(block, len(self.stays)) - 1] if self.stays else 1.0


class GatePace(Struct, frozen=True, kw_only=True):
    """The pace of a suite's gates."""

    block_s: float  # Wall seconds of a block that holds every case; nan when unknown
    overhead_s: float  # Wall seconds of a gate beside its blocks: arms, bundles, calibration of loops
    startup_s: float = math.nan
    """Wall seconds of a block beside its cases: starting processes, imports; nan when unknown, and then every case is
    reckoned to be measured in every block."""
    cases: Mapping[str, CasePace] = field(default_factory=dict)  # By case id

    @property
    def knows_cases(self) -> bool:
        """Whether it is known what single cases take."""
        return math.isfinite(self.startup_s) and bool(self.cases)

    def blocks_within(self, budget_s: float, case_id: str | None = None) -> int:
        """Whole blocks that a budget holds; 0 where nothing is known.

        Args:
            budget_s: Wall seconds of the whole gate.
            case_id: The case that is measured to the end, while nothing has changed in the others, which leave as they
                do in gates of identical arms. None: every case is measured to the end.
        """
        if not self.block_s > 0:
            return 0
        left_s, last = budget_s - self.overhead_s, self._last_change(case_id)
        for blocks in range(last):
            taken_s = self._block_s(blocks + 1, case_id)
            if taken_s > left_s:
                return blocks
            left_s -= taken_s
        return last + max(0, math.floor(left_s / self._block_s(last + 1, case_id)))

    def minutes_for(self, blocks: int, case_id: str | None = None) -> float:
        """Minutes of a gate whose budget holds so many blocks; `case_id` as for `blocks_within`."""
        changing = min(blocks, self._last_change(case_id))
        changing_s = sum(self._block_s(number, case_id) for number in range(1, changing + 1))
        lasting_s = (blocks - changing) * self._block_s(changing + 1, case_id)
        return (self.overhead_s + changing_s + lasting_s) / 60.0

    def _last_change(self, case_id: str | None) -> int:
        """The block after which all blocks take equally long."""
        if case_id is None or not self.knows_cases:
            return 0
        return max(len(case.stays) for case in self.cases.values())

    def _block_s(self, block: int, case_id: str | None) -> float:
        """Wall seconds of a block, counted from 1."""
        if case_id is None or not self.knows_cases:
            return self.block_s
        return self.startup_s + sum(
            case.wall_s * (1.0 if name == case_id else case.stay_in(block)) for name, case in self.cases.items()
        )


CERTIFIED_RATE = 0.01
"""A machine is certified once its false-alarm rate is shown to be at most this: 0 of 299 gates, or 1 of 473."""


class FalseAlarms(Struct, frozen=True, kw_only=True):
    """How often gates were red although nothing had changed."""

    count: int  # Red gates
    gates: int  # A/A gates that reached a verdict
    bound: float  # The rate is at most this, with 95 % confidence

    @property
    def is_certified(self) -> bool:
        """Whether a rate of at most 1 % is shown."""
        return self.bound <= CERTIFIED_RATE


class CalibratedCase(Struct, frozen=True, kw_only=True):
    """One case over all A/A gates."""

    case_id: str
    gating: bool  # Whether it could fail the latest gate
    gates: int  # Gates that measured it
    blocks: int  # Blocks of those gates together
    block_sd: float  # Pooled SD of its block log-ratios; nan when unknown
    block_sd_interval: Interval  # For that SD
    intraclass_correlation: float  # Share of a sample's variance that its block shares; nan when unknown
    autocorrelation: float  # Of neighbouring blocks inside a gate; nan when unknown
    autocorrelation_band: Interval  # Where it falls if the order of the blocks means nothing
    placebo_gates: int  # Gates with relocated arms that measured it
    placebo_spread: float  # SD between gates of the true effect of a placebo; nan without a placebo gate
    placebo_floor_ratio: float  # Smallest slowdown that layout luck does not explain; 0 where no placebo effect is seen
    margin_ratio: float  # Smallest slowdown worth a flag: the larger of the configured margin and the placebo floor
    mde: tuple[tuple[int, float], ...]  # Minutes of a gate, and slowdown that it finds with 80 % power, unconfirmed

    @property
    def is_autocorrelated(self) -> bool:
        """Whether chance alone does not explain the autocorrelation."""
        band = self.autocorrelation_band
        return self.autocorrelation < band.lower or self.autocorrelation > band.upper


class CalibrationSummary(Struct, frozen=True, kw_only=True):
    """Error rate, noise and pace of a machine's gates."""

    suite: str
    first_at: str | None  # When the first gate finished
    latest_at: str | None  # When the latest gate finished
    gates: int  # A/A gates, also those that reached no verdict
    placebo_gates: int  # Gates with relocated arms
    placebo_limit: float  # Upper 95 % limit of the SD of placebo effects, log scale, over all cases; inf without one
    margin_ratio: float  # Margin of the cases that have no larger one of their own
    pace: GatePace  # How long its blocks take
    false_alarms: FalseAlarms  # Of the gate as a whole
    cases: tuple[CalibratedCase, ...]  # Gating ones first, by id


PLAN_SCHEMA = 2


class PlannedCase(Struct, frozen=True, kw_only=True):
    """One gating case of the suite."""

    case_id: str
    block_sd: float | None  # SD of its block log-ratios; None where it was never measured
    margin_ratio: float  # Its margin, placebo floor included
    blocks: int | None  # Blocks that find the slowdown with `power`, without confirmation; None: more than 1000
    minutes: float | None  # Minutes that a gate takes to get there, where the other cases are unchanged
    gating: bool  # Whether the budget holds so many blocks, where the other cases are unchanged
    reason: Fact  # What it needs, and where it may not gate, why


class SuitePlan(Struct, frozen=True, kw_only=True):
    """What a suite can find within its budget on one machine."""

    schema: int = PLAN_SCHEMA
    suite: str
    machine_id: str  # Machine it was made for
    cpus: int  # CPUs that are measured on
    env_profile: str  # `stable` or `production`
    created_at: str  # UTC time, ISO 8601
    source: Fact  # What it was made from
    detect_ratio: float  # Slowdown to find
    power: float  # Chance to find it
    alpha: float
    budget_s: float
    blocks_within: int  # Blocks that the budget holds where every case is measured to the end
    minutes: float | None  # Of a gate in which every gating case left reaches its power; None where none is left
    cases: tuple[PlannedCase, ...]  # In the order of the suite
