"""What A/A gates said of a machine, as it is stored: raw values only, so that nothing is kept twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfguard.records.verdict import GateOutcome, Policy

CALIBRATION_SCHEMA = 1

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""UTC, ISO 8601."""

DECISION_RULE = 5
"""Version of the gate's rule; raise it whenever the rule flags other cases. 1: one look at the end. 2: looks at growing
data, confirmation of flags. 3: blocks weighted by the scatter of their samples. 4: the time for confirmations measures
where nothing is flagged. 5: cases too noisy to gate are tested in the family only, and measured on until it decides."""

COUNTED = (GateOutcome.PASS.value, GateOutcome.REGRESSED.value, GateOutcome.INCONCLUSIVE.value)
"""Outcomes that count as a trial. On a disturbed host a gate says nothing, which is no evidence for the rule either."""


LEAST_BLOCKS = Policy().min_blocks
"""With fewer blocks no gating case can be flagged, so such a gate is no trial either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a calibration is valid for: the machine, the software, and the rule."""

    machine_id: str
    """Identity of the machine."""
    stack_id: str | None
    """Identity of the software; None where it is not known."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions for a reader, `torch` and `python`."""
    cpus: int
    """CPUs that were measured on."""
    env_profile: str
    """`stable` or `production`."""
    rule: int
    """Version of the decision rule."""
    alpha: float
    """Family-wise level of the gates."""
    margin_ratio: float
    """Margin of the gates, before any placebo floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSample:
    """One case in one A/A gate."""

    gating: bool
    """Whether it could fail the gate."""
    block_log_ratios: tuple[float, ...]
    """One value for each block that was not voided, in the order they ran, candidate over baseline."""
    samples: int
    """Paired samples that made a block's value, typically."""
    sample_variance: float | None
    """Mean over blocks of the variance of one paired sample; None with a single sample."""
    block_variances: tuple[float | None, ...] = ()
    """Squared standard error of each block's value from its samples alone, None where they are too few; empty where the
    rule did not weight blocks yet."""
    blocks: int = 0
    """Blocks that measured it, voided ones with them; 0 in older calibrations."""
    wall_s: float | None = None
    """Wall seconds of a block that it took, typically: set-up in both arms, warm-ups, samples; None where not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AAGate:
    """One gate whose arms were the same."""

    run_id: str
    """The run it came from; a run counts once."""
    finished_at: str
    """UTC time, ISO 8601."""
    outcome: str
    """Value of GateOutcome, by the times alone."""
    flagged: tuple[str, ...]
    """Gating cases that were called regressed."""
    placebo: bool
    """Whether the arms lay at paths of unequal length with environments of unequal size."""
    banked: bool
    """Whether it was a gate of somebody's work that turned out to compare a thing with itself."""
    blocks: int
    """Blocks that ran, without those of a confirmation."""
    block_s: float
    """Wall seconds of a block that held every case, typically."""
    duration_s: float
    """Wall seconds of the whole gate."""
    overhead_s: float
    """Wall seconds of it that were not blocks."""
    startup_s: float | None = None
    """Wall seconds of a block beside its cases, typically; None where not known."""
    cases: dict[str, CaseSample]
    """By case id."""

    @property
    def is_counted(self) -> bool:
        """Whether it is a trial of the rule."""
        most = max((len(sample.block_log_ratios) for sample in self.cases.values() if sample.gating), default=0)
        return self.outcome in COUNTED and most >= LEAST_BLOCKS

    @property
    def is_false_alarm(self) -> bool:
        """Whether it was red although nothing had changed."""
        return self.is_counted and self.outcome == GateOutcome.REGRESSED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All A/A gates of one suite on one machine."""

    schema: int = CALIBRATION_SCHEMA
    """Version of the stored layout."""
    perfguard: str
    """Version of perfguard that wrote it last."""
    suite: str
    """Name of the suite."""
    scope: Scope
    """What it is valid for."""
    gates: tuple[AAGate, ...] = ()
    """By the time they finished."""
