"""What perfguard says about a case and about a gate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from perfguard.records.estimate import Estimate, Interval
from perfguard.records.facts import Fact
from perfguard.records.spec import Gating


class Outcome(str, Enum):
    """The verdict on one case. Wide is `inconclusive`, never `unchanged`."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    SAME_CODE = "same-code"  # Both arms run the same code, whatever their times say
    UNTOUCHED = "untouched"  # The arms differ, but not in what the case runs; it was not measured
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "no-baseline"
    FAILED = "failed"
    INVALID = "invalid"  # The candidate's results are not good enough, so its speed does not count
    DIFFERENT = "different"  # The arms do not compute the same thing, so their times say nothing about speed
    ALLOWED = "allowed"  # Slower, but within what the project's allow-list accepts


class Design(str, Enum):
    """How the two sides of a comparison were measured."""

    PAIRED = "paired"
    ROUNDS = "rounds"


class GateOutcome(str, Enum):
    """The verdict on a gate."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    HOST_UNSTABLE = "host-unstable"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "no-baseline"
    FAILED = "failed"
    INVALID = "invalid"
    DIFFERENT = "different"


WIDE_MARGIN = 0.005
"""Smallest slowdown worth a flag where nothing is known of the machine."""
NARROW_MARGIN = 0.0025
"""The same where a calibration shows that copies of one code at other places hardly differ."""


class Margins(Struct, frozen=True, kw_only=True):
    """Smallest slowdowns worth a flag, on one machine."""

    ratio: float  # Of every case that is not in `cases`
    cases: Mapping[str, float] = field(default_factory=dict)  # Larger ones, by case id


class Policy(Struct, frozen=True, kw_only=True):
    """The rule a gate decides by. Source: docs/statistics.md."""

    margin_ratio: float = WIDE_MARGIN  # Smallest effect worth a flag; H0 is `effect <= margin`
    margins: Mapping[str, float] = field(default_factory=dict)  # Larger ones of single cases
    alpha: float = 0.008  # Family-wise error rate over the gating cases of one gate
    equivalence_ratio: float = 0.02  # `unchanged` needs the whole interval inside +- this
    interval_level: float = 0.95  # Level of the intervals that are shown and that `unchanged` is judged by
    min_blocks: int = 5  # Fewer usable blocks than this is always inconclusive
    min_rounds: int = 2  # The same for the rounds of either side, against a stored baseline
    clean_ratio: float = 0.01  # A case is left before the budget ends once it is shown to lie inside +- this
    confirm_level: float = 0.05  # A flag is confirmed when relocated arms are slower at all at this one-sided level
    max_block_sd_ratio: float = 0.05  # Noisier cases are advisory, unless an effect is shown in spite of the noise
    max_void_fraction: float = 0.25  # More voided blocks than this and the host is called unstable

    def margin_of(self, case_id: str) -> float:
        """The margin of a case."""
        return max(self.margin_ratio, self.margins.get(case_id, 0.0))


class Comparison(Struct, frozen=True, kw_only=True):
    """One case, compared: the evidence, before any decision."""

    case_id: str  # `kernel.linear[m=512,dtype=bf16]`
    gating: Gating  # As the suite asked for
    estimate: Estimate | None  # None when nothing could be estimated; `problem` says why
    p_regressed: float | None  # One-sided p of H0 `effect <= margin`; None without an estimate
    p_improved: float | None  # One-sided p of H0 `effect >= -margin`; None without an estimate
    baseline_median_s: float | None  # Median seconds per iteration of the baseline
    candidate_median_s: float | None  # Median seconds per iteration of the candidate
    margin_ratio: float  # The margin that p refers to
    p_outside: float | None = None  # p of H0 `the effect is not inside +- equivalence_ratio`; None without an estimate
    p_unclean: float | None = None  # p of H0 `the effect is not inside +- clean_ratio`; None without analyses
    block_s: float | None = None  # Wall seconds of the latest block that measured this case, all cases and start-up
    inflation: float = 1.0  # How many times wider the interval is because neighbouring blocks are alike
    analyses: int = 1  # Times that the growing data was looked at; the p-values are valid after all of them
    design: Design = Design.PAIRED  # Paired blocks, or rounds against a stored baseline
    blocks_voided: int = 0  # Blocks left out by the arm-blind rule
    problem: Fact | None = None  # Why there is no estimate
    problem_outcome: Outcome | None = None  # `failed`, `incomparable`, `no-baseline`, `inconclusive`, with `problem`


class Confirmation(Struct, frozen=True, kw_only=True):
    """What relocated arms said of a flagged case."""

    confirmed: bool  # Whether they were slower too
    estimate: Estimate | None  # From the blocks of the confirmation alone; None where too few completed
    p_slower: float | None  # One-sided p of H0 `not slower`, corrected for the analyses
    problem: Fact | None = None  # Why there is no estimate, where more is known than that blocks are missing


class ModeReport(Struct, frozen=True, kw_only=True):
    """A case whose blocks fall into a fast and a slow mode."""

    slow_over_fast: float  # How much slower the slow mode is, as a ratio: 0.08 for 8 %
    baseline_slow_share: float  # Share of the baseline's blocks in the slow mode
    candidate_slow_share: float  # The same of the candidate
    p_mix: float  # Two-sided p of H0 `both arms mix the modes alike`
    mix_changed: bool  # Whether it was rejected
    explains_effect: bool  # Whether no shift is left within the modes
    within_log_ratio: float = math.nan  # Effect within the modes; nan in recordings that do not hold it
    within: Interval | None = None


class SignalFinding(Struct, frozen=True, kw_only=True):
    """What another signal than wall time says of a case."""

    signal: str  # `cpu`, `faults`, `memory`, `switches`, `energy`, `instructions`, or the benchmark's own name
    outcome: Outcome  # `regressed`, `improved`, `unchanged` or `inconclusive` by the signal's own rule
    gating: bool  # Whether its regression fails the gate
    unit: str  # Unit of the values, for one iteration: `s`, `B`, `J`, or empty for counts
    baseline: float  # Typical value of the baseline
    candidate: float  # Typical value of the candidate
    p_adjusted: float | None  # p of a regression after correction over cases and signals
    fact: Fact  # What was seen, or why nothing can be said


class Verdict(Struct, frozen=True, kw_only=True):
    """One case, judged."""

    case_id: str
    outcome: Outcome
    gating: Gating  # After demotion of noisy cases
    reasons: tuple[Fact, ...]  # What was seen and why it leads to the outcome; what decided comes first
    comparison: Comparison
    timed_outcome: Outcome | None = None  # By the times alone, where the arms run the same code and were measured
    p_adjusted: float | None = None  # p of a regression after family-wise adjustment over the gating cases
    mde_ratio: float | None = None  # Smallest effect this run could have seen with 80 % power
    confirmation: Confirmation | None = None  # Where the case was flagged: what relocated arms said
    modes: ModeReport | None = None  # Where the case is bimodal
    signals: tuple[SignalFinding, ...] = ()  # Signals beyond wall time that the machine has, in a fixed order
    allowance: Fact | None = None  # The entry of the allow-list that applies

    @property
    def effect(self) -> Estimate | None:
        """The estimate that is shown; None where there is none, or both arms run the same code."""
        return None if self.outcome is Outcome.SAME_CODE else self.comparison.estimate


class GateResult(Struct, frozen=True, kw_only=True):
    """All verdicts and what follows from them."""

    outcome: GateOutcome
    reasons: tuple[Fact, ...]  # What holds of the gate, the deciding fact first
    verdicts: tuple[Verdict, ...]  # In the order of the suite
    policy: Policy  # The rule it was decided by
    blocks_total: int  # Blocks that ran
    blocks_voided: int  # Blocks voided by the arm-blind rule
    missing_signals: tuple[Fact, ...] = ()  # Signals that this machine lacks, each with the reason
    identical: bool = False  # Whether the arms hash identical, so that the gate passes by construction
    measured_outcome: GateOutcome | None = None  # What the times alone would have said, where the arms are identical
    notes: tuple[Fact, ...] = ()  # What the reader must know beside the table
