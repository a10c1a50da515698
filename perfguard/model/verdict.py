"""What perfguard says about a case and about a gate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perfguard.model.estimate import Estimate
from perfguard.model.spec import Gating


class Outcome(str, Enum):
    """The verdict on one case. Wide is `inconclusive`, never `unchanged`."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "no-baseline"
    FAILED = "failed"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rule a gate decides by. Source: docs/statistics.md."""

    margin_ratio: float = 0.005
    """Smallest effect worth a flag; H0 is `effect <= margin`."""
    alpha: float = 0.008
    """Family-wise error rate over the gating cases of one gate."""
    equivalence_ratio: float = 0.02
    """`unchanged` needs the whole interval inside +- this."""
    interval_level: float = 0.95
    """Level of the intervals that are shown and that `unchanged` is judged by."""
    min_blocks: int = 5
    """Fewer usable blocks than this is always inconclusive."""
    min_rounds: int = 2
    """The same for the rounds of either side, against a stored baseline."""
    max_block_sd_ratio: float = 0.05
    """Cases noisier than this are demoted from gating to advisory."""
    max_void_fraction: float = 0.25
    """More voided blocks than this and the host is called unstable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One case, compared: the evidence, before any decision."""

    case_id: str
    """`kernel.linear[m=512,dtype=bf16]`."""
    gating: Gating
    """As the suite asked for."""
    estimate: Estimate | None
    """None when nothing could be estimated; `problem` says why."""
    p_regressed: float | None
    """One-sided p of H0 `effect <= margin`; None without an estimate."""
    p_improved: float | None
    """One-sided p of H0 `effect >= -margin`; None without an estimate."""
    baseline_median_s: float | None
    """Median seconds per iteration of the baseline."""
    candidate_median_s: float | None
    """Median seconds per iteration of the candidate."""
    margin_ratio: float
    """The margin that p refers to."""
    design: Design = Design.PAIRED
    """Paired blocks, or rounds against a stored baseline."""
    blocks_voided: int = 0
    """Blocks left out by the arm-blind rule."""
    problem: str | None = None
    """Why there is no estimate, one sentence."""
    problem_outcome: Outcome | None = None
    """`failed`, `incomparable`, `no-baseline` or `inconclusive` when `problem` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One case, judged."""

    case_id: str
    """The case."""
    outcome: Outcome
    """What is said of it."""
    gating: Gating
    """After demotion of noisy cases."""
    reason: str
    """One sentence: what was seen and why it leads to the outcome."""
    comparison: Comparison
    """The evidence."""
    p_adjusted: float | None = None
    """p of a regression after family-wise adjustment over the gating cases."""
    mde_ratio: float | None = None
    """Smallest effect this run could have seen with 80 % power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All verdicts and what follows from them."""

    outcome: GateOutcome
    """The gate's verdict."""
    reason: str
    """One sentence."""
    verdicts: tuple[Verdict, ...]
    """In the order of the suite."""
    policy: Policy
    """The rule it was decided by."""
    blocks_total: int
    """Blocks that ran."""
    blocks_voided: int
    """Blocks voided by the arm-blind rule."""
    notes: tuple[str, ...] = ()
    """What the reader must know beside the table, for instance that the gate is uncalibrated."""
